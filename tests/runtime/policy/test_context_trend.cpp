#include <gtest/gtest.h>

#include <random>

#include "runtime/policy/context_trend.hpp"

namespace paceline::policy {
namespace {

TEST(ContextTrend, KnowsNothingAtFirst) {
  ContextTrend trend;
  EXPECT_EQ(trend.factor(100), 1);
  EXPECT_EQ(trend.factor(0), 1);
  trend.observe(100, 1);
  EXPECT_EQ(trend.factor(100), 1);
  EXPECT_EQ(trend.factor(1000), 1);
}

TEST(ContextTrend, FollowsALine) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  ContextTrend trend;
  for (int context = 50; context < 400; ++context)
    trend.observe(context, (1 + 0.004 * context) * noise(random));
  for (const double context : {50.0, 200.0, 400.0, 600.0})
    EXPECT_NEAR(trend.factor(context) / ((1 + 0.004 * context) / (1 + 0.004 * 50)), 1, 0.12)
        << context;
}

TEST(ContextTrend, NoiseIsNoSlope) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> noise(0.8, 1.2);
  ContextTrend trend;
  for (int i = 0; i < 1000; ++i) trend.observe(300 + i % 10, noise(random));
  EXPECT_NEAR(trend.factor(600), 1, 0.1);
  for (int i = 0; i < 1000; ++i) trend.observe(100 + i % 400, noise(random));
  EXPECT_NEAR(trend.factor(600), 1, 0.15);
}

TEST(ContextTrend, NeverFallsNorRunsAway) {
  ContextTrend trend;
  for (int i = 0; i < 300; ++i) trend.observe(100 + i, 10 - 0.01 * i);
  EXPECT_EQ(trend.factor(1000), 1);
  trend.forget();
  for (int i = 0; i < 300; ++i) trend.observe(100 + i, i * i);
  EXPECT_LE(trend.factor(1e9), 4);
  EXPECT_GE(trend.factor(1), 0.25);
}

TEST(ContextTrend, OldMeasurementsFade) {
  ContextTrend trend;
  for (int i = 0; i < 1000; ++i) trend.observe(100 + i % 300, 1 + 0.01 * (i % 300));
  for (int i = 0; i < 3000; ++i) trend.observe(100 + i % 300, 2);
  EXPECT_NEAR(trend.factor(400), 1, 0.01);
}

}  // namespace
}  // namespace paceline::policy
