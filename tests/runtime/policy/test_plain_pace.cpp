#include "runtime/policy/plain_pace.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "runtime/policy/step_cost.hpp"

namespace paceline::policy {
namespace {

/// What a plain step is foreseen to take, by the usual.
double foreseen(const PlainPace& pace, const StepPlace& place) {
  return pace.common(place) * pace.local(place.requests);
}

class PlainPaceTest : public ::testing::Test {
 protected:
  /// Steps of so many requests, each a token longer than the one before, from `context` on.
  template <class Ratio>
  void decode(int steps, double requests, double context, Ratio&& ratio) {
    for (int i = 0; i < steps; ++i) {
      place_ = {requests, context + i, place_.step + 1};
      pace_.observe(place_, ratio(context + i) * noise_(random_), kNoise);
    }
  }
  static double same(double) { return 1; }
  static constexpr double kNoise = 0.08;

  PlainPace pace_;
  StepPlace place_;
  std::mt19937 random_{1};
  std::uniform_real_distribution<double> noise_{0.92, 1.08};
};

TEST_F(PlainPaceTest, TakesTheUsualForTrueAtFirst) {
  EXPECT_EQ(foreseen(pace_, {8, 100, 0}), 1);
  EXPECT_EQ(pace_.doubt({8, 100, 0}), 0);
}

TEST_F(PlainPaceTest, LearnsWhatTheContextCosts) {
  const auto ratio = [](double context) { return std::pow((context + 16) / 66, 0.4); };
  decode(350, 64, 50, ratio);
  for (const double context : {60.0, 200.0, 800.0})
    EXPECT_NEAR(pace_.common({64, context, 350}) / ratio(context), 1, 0.12) << context;
}

TEST_F(PlainPaceTest, NoiseIsNoSlopeAndCostsDoNotFallInTheContext) {
  for (int i = 0; i < 100; ++i) decode(10, 64, 300, same);
  EXPECT_NEAR(foreseen(pace_, {64, 600, 1000}), 1, 0.1);
  decode(300, 64, 300, [](double context) { return 300 / context; });
  EXPECT_GE(pace_.common({64, 1200, 1300}), pace_.common({64, 600, 1300}));
}

TEST_F(PlainPaceTest, DoubtsWhatIsFarFromWhatWasMeasured) {
  decode(100, 64, 100, same);
  const double here = pace_.doubt(place_);
  EXPECT_LT(here, 0.03);
  const auto [requests, context, step] = place_;
  EXPECT_GT(pace_.doubt({requests, 8 * context, step}), 3 * here);
  EXPECT_GT(pace_.doubt({requests, context / 8, step}), 3 * here);
  EXPECT_GT(pace_.doubt({requests / 2, context, step}), 3 * here);
  EXPECT_GT(pace_.doubt({requests, context, step + 2000}), 2 * here);
}

TEST_F(PlainPaceTest, WhatIsTrueOfSomeBatchSizesIsNotSaidOfOthers) {
  decode(200, 64, 100, same);
  double usual = 1;  // seconds of steps of 8, as StepCost learns them: too few at first
  for (int i = 0; i < 100; ++i) {
    place_ = {8, 300.0 + i, place_.step + 1};
    const double seconds = 1.3 * noise_(random_);
    pace_.observe(place_, seconds / usual, kNoise);
    usual += (seconds / pace_.common(place_) - usual) / StepCost::kMemory;
    if (i < 10) continue;
    EXPECT_NEAR(usual * foreseen(pace_, place_), 1.3, 0.1) << i;
  }
  EXPECT_NEAR(foreseen(pace_, {64, 500, place_.step}), 1, 0.12);
}

TEST_F(PlainPaceTest, FollowsAMachineThatBecameSlower) {
  decode(200, 64, 100, same);
  decode(60, 64, 300, [](double) { return 1.5; });
  EXPECT_NEAR(foreseen(pace_, place_), 1.5, 0.12);
}

TEST_F(PlainPaceTest, BelievesNoSingleSlowStep) {
  decode(100, 64, 100, same);
  place_.step += 1;
  const double before = foreseen(pace_, place_);
  const double doubt = pace_.doubt(place_);
  pace_.observe(place_, 10, kNoise);
  EXPECT_LT(foreseen(pace_, place_), 1.1 * before);
  EXPECT_GE(pace_.doubt(place_), doubt);
  pace_.observe(place_, 0, kNoise);  // nor in a clock that jumped
  EXPECT_EQ(pace_.doubt(place_), doubt);
}

TEST_F(PlainPaceTest, LearnsLessFromWhatIsLessSure) {
  decode(100, 64, 100, same);
  PlainPace other = pace_;
  place_.requests = 8;
  pace_.observe(place_, 1.15, kNoise);
  other.observe(place_, 1.15, 3 * kNoise);
  EXPECT_GT(foreseen(pace_, place_), foreseen(other, place_) + 0.03);
  EXPECT_GT(other.doubt(place_), 1.2 * pace_.doubt(place_));
}

TEST_F(PlainPaceTest, SeesSoonThatTheTextsAreShortAgain) {
  decode(1000, 64, 20, [](double context) { return 1 + 0.002 * context; });
  decode(6, 64, 20, same);
  EXPECT_NEAR(foreseen(pace_, place_), 1, 0.12);
  EXPECT_LT(pace_.doubt(place_), 0.06);
}

}  // namespace
}  // namespace paceline::policy
