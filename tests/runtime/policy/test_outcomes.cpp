#include "runtime/policy/length/outcomes.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace paceline::policy {
namespace {

TEST(Outcomes, AsManyAreDraftedAsMakeACallDraftTheMostASecond) {
  const std::vector<double> chances{0.3, 0.2, 0.1, 0.1, 0.05};
  const SureDrafts sure{1, 0.5, 100};
  const CostCurve free({{1, 1}, {8, 1}});
  EXPECT_EQ(outcomes_that_pay(free, sure, chances), 5U);
  // Rows that cost as much as the first: none is likelier than the sure one.
  const CostCurve linear({{1, 1}, {2, 2}});
  EXPECT_EQ(outcomes_that_pay(linear, sure, chances), 0U);
  // 0.5 / 1 < 0.8 / 1.5 < 1 / 1.8 > 1.1 / 2.1: by hand.
  const CostCurve rising({{1, 1}, {2, 1.5}, {3, 1.8}, {4, 2.1}, {5, 2.4}});
  EXPECT_EQ(outcomes_that_pay(rising, sure, chances), 2U);
  // Nothing else to draft: the likeliest one at least.
  EXPECT_EQ(outcomes_that_pay(linear, {0, 0, 100}, chances), 1U);
}

TEST(Outcomes, ACallOfTheirOwnMustBeWorthTheDelayOfWhatComesMeanwhile) {
  const CostCurve free({{1, 1}, {8, 1}});
  const std::vector<double> chances{0.06, 0.03, 0.02};
  EXPECT_EQ(outcomes_that_pay(free, {0, 0, 0, 0}, chances), 3U);
  EXPECT_EQ(outcomes_that_pay(free, {0, 0, 0, 0.2}, chances), 3U) << "0.11 - 0.2 / 2";
  EXPECT_EQ(outcomes_that_pay(free, {0, 0, 0, 0.25}, chances), 0U);
  EXPECT_EQ(outcomes_that_pay(free, {0, 0, 0, 1000}, std::vector<double>{0.51}), 1U);
  // Sure rows wait for nothing.
  EXPECT_EQ(outcomes_that_pay(free, {1, 0.5, 0, 0.25}, chances), 3U);
}

TEST(Outcomes, NothingIsDraftedForNextToNothingOrAtUnknownCosts) {
  const CostCurve free({{1, 1}, {8, 1}});
  EXPECT_EQ(outcomes_that_pay(free, {1, 1, 0}, std::vector<double>{0.1, 0.005, 0.001}), 1U);
  EXPECT_EQ(outcomes_that_pay(free, {1, 1, 0}, {}), 0U);
  EXPECT_EQ(outcomes_that_pay({}, {1, 1, 0}, std::vector<double>{0.5}), 0U);
}

TEST(Outcomes, AttentionCountsAmongCosts) {
  const CostCurve attending({{1, 1}, {8, 1}}, 0.001);
  EXPECT_EQ(outcomes_that_pay(attending, {1, 0.5, 10}, std::vector<double>{0.2}), 1U);
  EXPECT_EQ(outcomes_that_pay(attending, {1, 0.5, 10'000}, std::vector<double>{0.2}), 0U);
}

}  // namespace
}  // namespace paceline::policy
