// Which drafters goodput asks, of several.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/policy/length/acceptance.hpp"
#include "runtime/policy/length/goodput.hpp"

namespace paceline::policy {
namespace {

constexpr int kLength = 8;
constexpr double kStep = 0.01;  ///< seconds of a plain step

struct Priced {
  double token = 0;  ///< seconds of a draft token for the whole batch; 0: free
  DraftHope hope;    ///< for each request
};

/// Whether each is asked, where a step verifies `flat` rows at no cost and 0.05 ms for each further
/// one.
std::vector<bool> asked(const std::vector<Priced>& drafters, int batch, double flat = 1000) {
  CostTable costs;
  costs.decode = CostCurve({{1, kStep}, {flat, kStep}, {flat + 1000, kStep + 0.05}});
  std::vector<DraftHope> hopes;
  for (const Priced& drafter : drafters) {
    DrafterCosts own;
    if (drafter.token > 0)
      own.first = own.round = CostCurve({{1, drafter.token}, {1000, drafter.token}});
    costs.drafters.push_back(own);
    hopes.insert(hopes.end(), batch, drafter.hope);
  }
  Goodput policy(costs, kLength);
  const std::vector<double> acceptance(batch, 0.9);
  const std::vector<int> longest(batch, kLength);
  DraftQuery query;
  query.requests = batch;
  query.acceptance = acceptance;
  query.longest_draft = longest;
  query.hopes = hopes;
  std::vector<int> lengths(batch, 0);
  for (int step = 0; step < 20 && lengths[0] == 0; ++step) {  // a few are trials without drafts
    EXPECT_TRUE(policy.considers(query));
    policy.choose(query, lengths);
  }
  EXPECT_GT(lengths[0], 0);
  std::vector<bool> asked;
  for (std::size_t d = 0; d < drafters.size(); ++d) asked.push_back(policy.asks(d));
  return asked;
}

using Asked = std::vector<bool>;
constexpr double kNothing = 1e-7;

TEST(GoodputOfDrafters, ADearOneMustBeWorthItsSeconds) {
  // 8 tokens by the second instead of 2 by the first, in 1.3 steps' time, or in 9.
  EXPECT_EQ(asked({{kNothing, {1, 0.7}}, {kStep / 30, {1, 0.99}}}, 4), (Asked{true, true}));
  EXPECT_EQ(asked({{kNothing, {1, 0.7}}, {kStep, {1, 0.99}}}, 4), (Asked{true, false}));
}

TEST(GoodputOfDrafters, OneThatIsNoBetterIsNotAskedHoweverCheap) {
  EXPECT_EQ(asked({{kNothing, {1, 0.7}}, {kStep / 100, {1, 0.7}}}, 4), (Asked{true, false}));
  EXPECT_EQ(asked({{kNothing, {1, 0.7}}, {kStep / 100, {}}}, 4), (Asked{true, false}))
      << "it drafts for none";
}

TEST(GoodputOfDrafters, OneThatSeldomFindsAnythingCountsForThatLess) {
  EXPECT_EQ(asked({{kNothing, {0.9, 0.9}}, {kStep / 30, {1, 0.8}}}, 4), (Asked{true, false}));
  EXPECT_EQ(asked({{kNothing, {0.1, 0.9}}, {kStep / 30, {1, 0.8}}}, 4), (Asked{true, true}));
}

TEST(GoodputOfDrafters, FreeOnesAreAskedWhereverTheyStand) {
  EXPECT_EQ(asked({{0, {1, 0.7}}, {kStep, {1, 0.99}}, {0, {1, 0.5}}}, 4),
            (Asked{true, false, true}));
  EXPECT_EQ(asked({{kStep, {1, 0.99}}, {0, {1, 0.7}}}, 4), (Asked{false, true}));
  EXPECT_EQ(asked({{0, {1, 0.7}}}, 4), Asked{true});
}

TEST(GoodputOfDrafters, CatchingUpHasToPayWhileTheResponseGoesOn) {
  CostTable costs;
  costs.decode = CostCurve({{1, kStep}, {1000, kStep}});
  const CostCurve token({{1, kStep / 20}, {1000, kStep / 20}});
  costs.drafters.push_back({"model", token, token, CostCurve({{16, 16e-4}, {16000, 1.6}})});
  constexpr int kBatch = 4;
  const std::vector<double> acceptance(kBatch, 0.9);
  const std::vector<int> longest(kBatch, kLength);
  const std::vector<int> lag(kBatch, 4000);  // 0.4 seconds, and a token saves less than 2.5 ms
  DraftQuery query;
  query.requests = kBatch;
  query.acceptance = acceptance;
  query.longest_draft = longest;
  query.lag = lag;
  const auto drafts = [&](const std::vector<std::int32_t>& response) {
    Goodput policy(costs, kLength);
    query.response = response;
    std::vector<int> lengths(kBatch, 0);
    for (int step = 0; step < 100 && lengths[0] == 0; ++step) {  // a few are trials without drafts
      if (policy.considers(query)) policy.choose(query, lengths);
    }
    return lengths[0] > 0;
  };
  EXPECT_FALSE(drafts({}));
  EXPECT_FALSE(drafts(std::vector<std::int32_t>(kBatch, 100))) << "a long prompt, a short response";
  EXPECT_TRUE(drafts(std::vector<std::int32_t>(kBatch, 3900)));
}

TEST(DraftOutcomes, HopeIsWhatDraftsCameTo) {
  DraftOutcomes outcomes(1e9);
  const DraftHope prior{1, 0.6};
  EXPECT_EQ(outcomes.hope(prior).found, 1);
  EXPECT_EQ(outcomes.hope(prior).next, 0.6);
  // Of four drafts one finds something: three levels, all of them accepted, where more were asked.
  for (int i = 0; i < 4000; ++i) {
    outcomes.record_found(i % 4 == 0);
    if (i % 4 == 0) outcomes.record_reach(3, true);
  }
  const DraftHope hope = outcomes.hope(prior);
  EXPECT_NEAR(hope.found, 0.25, 0.01);
  EXPECT_NEAR(hope.next, 0.75, 0.01);
  EXPECT_NEAR(hope.tokens(2), 0.25 * (0.75 + 0.75 * 0.75), 0.02);
  EXPECT_EQ(hope.tokens(0), 0);
}

}  // namespace
}  // namespace paceline::policy
