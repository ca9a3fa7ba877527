// What is common to all steps and what is of speculation alone, told apart.
#include "runtime/policy/pace.hpp"

#include <gtest/gtest.h>

#include <random>

namespace paceline::policy {
namespace {

/// Steps of one kind with a twentieth of noise.
class Steps {
 public:
  explicit Steps(Pace& pace) : pace_(pace) {}
  void make(int steps, double ratio, bool speculating, double context = 0) {
    for (int i = 0; i < steps; ++i) {
      pace_.pass(context, speculating);
      pace_.observe(ratio * noise_(random_), speculating);
    }
  }

 private:
  Pace& pace_;
  std::mt19937 random_{1};
  std::uniform_real_distribution<double> noise_{0.95, 1.05};
};

TEST(Pace, KnowsNothingAtFirst) {
  Pace pace;
  EXPECT_EQ(pace.common(), 1);
  EXPECT_EQ(pace.speculation(), 1);
  pace.pass(0, false);
  pace.observe(0, false);
  pace.observe(-1, true);
  EXPECT_EQ(pace.common(), 1);
}

TEST(Pace, WhatChangesWhenDraftsBeginIsSpeculations) {
  Pace pace;
  Steps steps(pace);
  steps.make(200, 1.5, false);
  EXPECT_NEAR(pace.common(), 1.5, 0.05);
  EXPECT_NEAR(pace.speculation(), 1, 0.02);
  steps.make(20, 1.5 * 1.2, true);
  EXPECT_NEAR(pace.common(), 1.5, 0.08);
  EXPECT_NEAR(pace.speculation(), 1.2, 0.06);
}

TEST(Pace, WhatChangesWhileTheyGoOnIsCommonUntilPlainStepsSayOtherwise) {
  Pace pace;
  Steps steps(pace);
  steps.make(200, 1, false);
  steps.make(50, 1.2, true);
  for (int i = 1; i <= 300; ++i) steps.make(1, 1.2 * (1 + i * 0.001), true);
  EXPECT_GT(pace.common(), 1.15);
  EXPECT_NEAR(pace.common() * pace.speculation(), 1.2 * 1.3, 0.06);
  steps.make(4, 1, false);  // it was speculation after all
  EXPECT_NEAR(pace.common(), 1, 0.1);
  EXPECT_GT(pace.speculation(), 1.35);
}

TEST(Pace, WhatSpeculationTookIsForgottenInPlainSteps) {
  Pace pace;
  Steps steps(pace);
  steps.make(100, 1, false);
  steps.make(30, 1.4, true);
  steps.make(1000, 1, false);
  EXPECT_NEAR(pace.speculation(), 1, 0.01);
}

TEST(Pace, ABurstHardlyCountsAndALastingChangeDoes) {
  Pace pace;
  Steps steps(pace);
  steps.make(200, 1, false);
  steps.make(1, 10, false);
  EXPECT_LT(pace.common(), 1.05);
  steps.make(3, 2, false);
  EXPECT_LT(pace.common(), 1.1);
  steps.make(20, 2, false);
  EXPECT_NEAR(pace.common(), 2, 0.1);
}

TEST(Pace, FollowsTheContextUnseen) {
  Pace pace;
  Steps steps(pace);
  const auto truth = [](double context) { return 1 + 0.002 * context; };
  for (int context = 50; context < 500; ++context) steps.make(1, truth(context), false, context);
  EXPECT_NEAR(pace.common(), truth(500), 0.1);
  // A prefill in each step: nothing is measured.
  for (int context = 500; context < 1000; ++context) pace.pass(context, false);
  EXPECT_GT(pace.common(), truth(700));
  EXPECT_LT(pace.common(), truth(1200));
  // The batch begins anew: two measurements are enough.
  steps.make(2, truth(50), false, 50);
  EXPECT_NEAR(pace.common(), truth(50), 0.15);
}

}  // namespace
}  // namespace paceline::policy
