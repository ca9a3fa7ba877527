// Calibration of drafters' scores.
#include <gtest/gtest.h>

#include "runtime/policy/length/acceptance.hpp"

namespace paceline::policy {
namespace {

TEST(AcceptanceModel, LearnsWhatScoresAreWorth) {
  AcceptanceModel model({0.6, 0.3});
  for (int i = 0; i < 1000; ++i) {
    model.record(0, 0.9, i % 10 < 5);  // overconfident
    model.record(0, 0.1, i % 10 < 2);
  }
  EXPECT_NEAR(model.estimate(0, 0.9), 0.5, 0.02);
  EXPECT_NEAR(model.estimate(0, 0.1), 0.2, 0.02);
  EXPECT_NEAR(model.mean(0), 0.35, 0.02);
  EXPECT_NEAR(model.estimate(0, 0.5), 0.35, 0.02);  // never seen: the mean
  EXPECT_EQ(model.mean(1), 0.3);  // nothing was seen of the other but what was known before
  EXPECT_EQ(model.estimate(1, 0.9), 0.3);
}

TEST(AcceptanceModel, Forgets) {
  AcceptanceModel model({kUnknownAcceptance});
  for (int i = 0; i < 5000; ++i) model.record(0, 1.0, true);
  EXPECT_GT(model.estimate(0, 1.0), 0.95);
  for (int i = 0; i < 8000; ++i) model.record(0, 1.0, false);
  EXPECT_LT(model.estimate(0, 1.0), 0.05);
}

TEST(AcceptanceModel, StaysFiniteForever) {
  AcceptanceModel model({kUnknownAcceptance});
  for (int i = 0; i < 1'000'000; ++i) model.record(0, 1.0, i % 4 != 0);
  EXPECT_NEAR(model.estimate(0, 1.0), 0.75, 0.02);
}

TEST(RequestAcceptance, LeansOnTheMeanUntilItKnowsBetter) {
  RequestAcceptance request;
  EXPECT_DOUBLE_EQ(request.estimate(0.4), 0.4);
  for (int i = 0; i < 20; ++i) request.record(4, false);
  EXPECT_GT(request.estimate(0.4), 0.85);
  for (int i = 0; i < 200; ++i) request.record(0, true);
  EXPECT_LT(request.estimate(0.4), 0.1);
}

}  // namespace
}  // namespace paceline::policy
