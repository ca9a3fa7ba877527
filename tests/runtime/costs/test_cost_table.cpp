// The cost table: what lies between and beyond what was measured.
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "runtime/costs/cost_table.hpp"

namespace paceline {
namespace {

TEST(CostCurve, AttendingIsLinearBetweenPointsAndInProportionBeyond) {
  const CostCurve curve({{1, 1.0}}, {{400, 6.0}, {100, 1.0}, {200, 0.5}});
  EXPECT_DOUBLE_EQ(curve.attending(1, 0), 0);
  EXPECT_DOUBLE_EQ(curve.attending(1, 50), 0.375);  // 0.75 at 100: levelled with its neighbour
  EXPECT_DOUBLE_EQ(curve.attending(1, 150), 0.75);
  EXPECT_DOUBLE_EQ(curve.attending(1, 300), 3.375);
  EXPECT_DOUBLE_EQ(curve.attending(1, 800), 12);
  EXPECT_DOUBLE_EQ(curve.per_position(), 0.015);
  EXPECT_DOUBLE_EQ(curve.seconds(2, 200), 2 + 6);
  EXPECT_THROW(CostCurve({{1, 1.0}}, {{0, 1.0}}), std::invalid_argument);
  EXPECT_THROW(CostCurve({{1, 1.0}}, {{1, -1.0}}), std::invalid_argument);
}

TEST(CostCurve, AttendingToLessThanTheMeasuredContextIsAShare) {
  const CostCurve curve({{1, 1.0}}, {{100, 1.0}, {400, 16.0}}, 100);
  EXPECT_DOUBLE_EQ(curve.attending(4, 0), 0);
  EXPECT_DOUBLE_EQ(curve.attending(1, 50), 0.5);
  EXPECT_DOUBLE_EQ(curve.attending(4, 100), 16);
  EXPECT_DOUBLE_EQ(curve.attending(4, 25), 4);  // not 1, as of one row that attends to 100
  EXPECT_DOUBLE_EQ(curve.attending(1, 400), 16);
  EXPECT_DOUBLE_EQ(curve.seconds(4, 25), 4 + 4);
  EXPECT_EQ(CostCurve({{1, 1.0}}, {}, 100).attending(4, 25), 0);
  EXPECT_THROW(CostCurve({{1, 1.0}}, {{1, 1.0}}, -1), std::invalid_argument);
}

TEST(CostCurve, IsLinearBetweenPointsAndInContext) {
  const CostCurve curve({{8, 3}, {1, 1}, {4, 2}}, 0.5);
  EXPECT_DOUBLE_EQ(curve.seconds(1), 1);
  EXPECT_DOUBLE_EQ(curve.seconds(2.5), 1.5);
  EXPECT_DOUBLE_EQ(curve.seconds(8), 3);
  EXPECT_DOUBLE_EQ(curve.seconds(4, 10), 2 + 4 * 10 * 0.5);
}

TEST(CostCurve, GoesOnPastItsEnds) {
  const CostCurve curve({{4, 1}, {8, 2}, {15, 4}, {16, 4.1}});
  EXPECT_DOUBLE_EQ(curve.seconds(1), 1);
  // By the slope from 8 to 16, not that of the last two, which noise may have made.
  EXPECT_DOUBLE_EQ(curve.seconds(32), 4.1 + 16 * (4.1 - 2) / 8);
  EXPECT_DOUBLE_EQ(CostCurve({{16, 4}}).seconds(32), 8);
  EXPECT_EQ(CostCurve().seconds(3, 7), 0);
}

TEST(CostCurve, NeverFallsInRows) {
  const CostCurve curve({{1, 3}, {2, 1}, {4, 2}, {8, 9}, {8, 11}});
  EXPECT_DOUBLE_EQ(curve.seconds(1), 2);
  EXPECT_DOUBLE_EQ(curve.seconds(4), 2);
  EXPECT_DOUBLE_EQ(curve.seconds(8), 10);  // twice measured: the mean
}

TEST(CostCurve, RefusesWhatIsNoCost) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(CostCurve({{0, 1}}), std::invalid_argument);
  EXPECT_THROW(CostCurve({{1, 0}}), std::invalid_argument);
  EXPECT_THROW(CostCurve({{1, nan}}), std::invalid_argument);
  EXPECT_THROW(CostCurve({{nan, 1}}), std::invalid_argument);
  EXPECT_THROW(CostCurve({{1, 1}}, -1), std::invalid_argument);
}

CostTable table() {
  CostTable t;
  t.decode = CostCurve({{1, 10}, {101, 110}}, 0.1);
  t.drafted_position = 0.02;
  t.prefill = CostCurve({{1, 4}, {101, 54}}, 0.01);
  return t;
}

TEST(CostTable, StepsCostRowsSamplingAndAttention) {
  const CostTable t = table();
  EXPECT_DOUBLE_EQ(t.step_seconds({.requests = 11}), 20);
  EXPECT_DOUBLE_EQ(t.step_seconds({.requests = 1, .drafted = 10}), 20);
  EXPECT_DOUBLE_EQ(t.step_seconds({.requests = 1, .drafted = 10, .context = 100}), 20 + 10 + 20);
  EXPECT_DOUBLE_EQ(t.step_seconds({.prefill_rows = 11}), 9);
  // All rows go through the layers; what 11 decoding rows cost beyond as many of prefill is on top.
  EXPECT_DOUBLE_EQ(t.step_seconds({.requests = 11, .prefill_rows = 10}), 14 + (20 - 9));
}

TEST(CostTable, DraftersAddUp) {
  CostTable t;
  EXPECT_EQ(t.round_seconds(5, 100), 0);
  EXPECT_EQ(t.catch_up_seconds(5, 100), 0);
  t.drafters.push_back({"suffix", CostCurve({{1, 3}}), CostCurve({{1, 1}}), {}});
  t.drafters.push_back({"model", CostCurve({{1, 5}}), CostCurve({{1, 2}, {8, 2}}),
                        CostCurve({{16, 8}, {32, 16}}, 0.01)});
  EXPECT_DOUBLE_EQ(t.first_seconds(4, 0), 12 + 20);
  EXPECT_DOUBLE_EQ(t.round_seconds(4, 0), 4 + 2);
  EXPECT_DOUBLE_EQ(t.catch_up_seconds(0, 0), 0);
  EXPECT_DOUBLE_EQ(t.catch_up_seconds(4, 0), 2);  // a share of the fewest measured
  EXPECT_DOUBLE_EQ(t.catch_up_seconds(32, 100), 16 + 32);
}

TEST(CostTable, RecomputingIsPrefillInChunks) {
  CostTable t;
  EXPECT_EQ(t.recompute_seconds(100, 0), 0);  // unknown
  t.prefill = CostCurve({{50, 30}, {100, 60}}, 0.001);
  EXPECT_DOUBLE_EQ(t.recompute_seconds(100, 0), 60);
  EXPECT_DOUBLE_EQ(t.recompute_seconds(100, 200), 60 + 20);
  // Three chunks that begin at 0, 100 and 200, and a half one at 300.
  EXPECT_DOUBLE_EQ(t.recompute_seconds(350, 0), 3 * 60 + 0.1 * (0 + 100 + 200) + 30 + 0.05 * 300);
}

TEST(CostTable, TransfersAreUnknownUntilMeasured) {
  CostTable t;
  EXPECT_FALSE(t.transfer_seconds(1e6));
  t.transfer = TransferCosts{0.5, 1e6};
  EXPECT_DOUBLE_EQ(*t.transfer_seconds(2e6), 2.5);
}

}  // namespace
}  // namespace paceline
