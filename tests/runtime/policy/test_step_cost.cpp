// Cost curves learned from noisy measurements.
#include "runtime/policy/step_cost.hpp"

#include <gtest/gtest.h>

#include <random>

namespace paceline::policy {
namespace {

/// Within 5 % of the truth; every 20th is five times too slow.
class Meter {
 public:
  double operator()(double seconds) {
    const double u = static_cast<double>(random_() >> 11) * 0x1p-53;
    return seconds * (random_() % 20 == 0 ? 5 : 0.95 + 0.1 * u);
  }

 private:
  std::mt19937_64 random_{7};
};

double truth(double rows) { return rows <= 64 ? 1 : rows / 64; }

TEST(StepCost, IsFoundThroughNoiseAndNeverFalls) {
  StepCost cost;
  Meter meter;
  EXPECT_EQ(cost.seconds(8), 0);
  for (int i = 0; i < 50; ++i) {
    for (const int rows : {1, 4, 16, 32, 64, 96, 128, 256}) cost.observe(rows, meter(truth(rows)));
  }
  double last = 0;
  for (int rows = 1; rows <= 512; ++rows) {
    const double seconds = cost.seconds(rows);
    EXPECT_NEAR(seconds, truth(rows), 0.06 * truth(rows)) << rows;
    EXPECT_GE(seconds, last);
    EXPECT_LE(cost.least_seconds(rows), seconds * (1 + 1e-9));
    last = seconds;
  }
}

TEST(StepCost, OneMeasurementGoesAWay) {
  StepCost cost;
  cost.observe(8, 1);
  EXPECT_FALSE(cost.known(8));
  EXPECT_DOUBLE_EQ(cost.seconds(8), 1);
  EXPECT_GT(cost.seconds(16), 1);
  EXPECT_LT(cost.seconds(16), 2);
  EXPECT_LT(cost.seconds(4), 1);
  EXPECT_GT(cost.seconds(4), 0.5);
  cost.observe(8, 1);
  EXPECT_TRUE(cost.known(8));
  EXPECT_FALSE(cost.known(16));
  EXPECT_EQ(cost.largest(), 8);
}

TEST(StepCost, ALoneOutlierGivesWayToBetterKnowledge) {
  StepCost cost;
  for (int i = 0; i < 10; ++i) {
    cost.observe(4, 1);
    cost.observe(16, 1.2);
  }
  cost.observe(8, 9);
  EXPECT_LT(cost.seconds(8), 1.3);
  EXPECT_LT(cost.seconds(16), 1.3);
  cost.observe(8, 1.1);
  EXPECT_NEAR(cost.seconds(8), 1.1, 1e-9);
}

TEST(StepCost, FollowsDriftOneCurvePointAtATime) {
  StepCost cost;
  Meter meter;
  for (int i = 0; i < 30; ++i) {
    cost.observe(8, meter(1));
    cost.observe(64, meter(2));
  }
  // What drafting steps cost says nothing of plain ones: were they to share a trend, plain decoding
  // would seem dear for as long as it is seldom tried.
  for (int i = 0; i < 2000; ++i) cost.observe(64, meter(2 + i / 2000.0));
  EXPECT_NEAR(cost.seconds(64), 3, 0.15);
  EXPECT_NEAR(cost.seconds(8), 1, 0.05);
}

TEST(StepCost, StartsOverAfterALastingChange) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) cost.observe(8, 1);
  for (int i = 0; i < 12; ++i) cost.observe(8, 3);
  EXPECT_NEAR(cost.seconds(8), 1, 0.2);  // a burst of outliers
  for (int i = 0; i < 2; ++i) cost.observe(8, 3);
  EXPECT_NEAR(cost.seconds(8), 3, 0.1);
  for (int i = 0; i < 3; ++i) cost.observe(8, 1);
  EXPECT_NEAR(cost.seconds(8), 1, 0.1);
}

TEST(StepCost, IgnoresWhatCannotBe) {
  StepCost cost;
  cost.observe(0, 1);
  cost.observe(4, 0);
  cost.observe(4, -1);
  EXPECT_EQ(cost.seconds(4), 0);
}

TEST(DraftCost, SeparatesRoundsFromCatchingUp) {
  DraftCost cost;
  Meter meter;
  EXPECT_EQ(cost.round_seconds(4), 0);
  EXPECT_FALSE(cost.catch_up_known());
  for (int i = 0; i < 40; ++i) cost.observe({3, 12, 0, meter(3 * 0.1)});
  EXPECT_NEAR(cost.round_seconds(4), 0.1, 0.005);
  EXPECT_EQ(cost.catch_up_seconds(100), 0);
  for (int i = 0; i < 40; ++i) cost.observe({3, 12, 1000, meter(3 * 0.1 + 2)});
  EXPECT_TRUE(cost.catch_up_known());
  EXPECT_NEAR(cost.catch_up_seconds(1000), 2, 0.8);
  EXPECT_NEAR(cost.round_seconds(4), 0.1, 0.005);
}

// Much of a call is there whatever its length: it must not be counted for each token again.
TEST(DraftCost, CatchingUpIsACurveNotAShare) {
  DraftCost cost;
  Meter meter;
  for (int i = 0; i < 40; ++i) cost.observe({3, 12, 0, meter(3 * 0.1)});
  for (int i = 0; i < 40; ++i) {
    for (int tokens = 20; tokens <= 640; tokens *= 2)
      cost.observe({3, 12, tokens, meter(3 * 0.1 + 2 + 0.001 * tokens)});
  }
  EXPECT_NEAR(cost.catch_up_seconds(20), 2.02, 0.2);
  EXPECT_NEAR(cost.catch_up_seconds(640), 2.64, 0.3);
  EXPECT_NEAR(cost.catch_up_seconds(5), 2.02 / 4, 0.1);  // fewer than ever measured
  EXPECT_EQ(cost.catch_up_seconds(0), 0);
}

}  // namespace
}  // namespace paceline::policy
