// Against the C library's functions, and against integrals that are known.
#include "runtime/sim/special_functions.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace paceline::sim {
namespace {

TEST(SpecialFunctions, LogarithmAndExponentialAreTheLibrarysOfAllSizes) {
  for (double x = 1e-300; x < 1e300; x *= 1.37)
    EXPECT_NEAR(log_of(x), std::log(x), 1e-12 * std::max(1.0, std::abs(std::log(x)))) << x;
  for (double x = -650; x < 650; x += 0.377) EXPECT_NEAR(exp_of(x) / std::exp(x), 1, 1e-12) << x;
  EXPECT_EQ(log_of(1), 0);
  EXPECT_EQ(exp_of(0), 1);
  for (double x = 1 - 1e-9; x < 1 + 1e-9; x += 1.3e-10)
    EXPECT_NEAR(log_of(x), std::log(x), 1e-22) << x;
}

TEST(SpecialFunctions, TheNormalDistributionIsTheErrorFunction) {
  for (double z = -10; z <= 10; z += 0.0317)
    EXPECT_NEAR(normal_cdf(z), std::erfc(-z / std::sqrt(2.0)) / 2, 1e-14) << z;
}

TEST(SpecialFunctions, NormalQuantilesAreWhereTheDistributionSays) {
  for (double z = -5; z <= 5; z += 0.0173)
    EXPECT_NEAR(normal_quantile(std::erfc(-z / std::sqrt(2.0)) / 2), z, 1e-9) << z;
  EXPECT_NEAR(normal_quantile(0.99), 2.3263478740408408, 1e-12);
  EXPECT_NEAR(normal_quantile(1e-10), -6.361340902404056, 1e-5);
  EXPECT_EQ(normal_quantile(0.5), 0);
}

// P(Beta(a, b) < x) by the midpoint rule in x = sin^2, where the density has no poles for a, b >=
// 1/2.
double beta_integral(double x, double a, double b) {
  const auto part = [&](double to) {
    constexpr int kParts = 20000;
    double sum = 0;
    for (int i = 0; i < kParts; ++i) {
      const double angle = to * (i + 0.5) / kParts;
      sum += std::pow(std::sin(angle), 2 * a - 1) * std::pow(std::cos(angle), 2 * b - 1);
    }
    return sum * to / kParts;
  };
  return part(std::asin(std::sqrt(x))) / part(std::acos(-1.0) / 2);
}

TEST(SpecialFunctions, TheBetaDistributionIsItsIntegral) {
  for (const double a : {0.5, 1.0, 2.3, 9.0, 40.0}) {
    for (const double b : {0.5, 1.0, 3.7, 25.0}) {
      for (const double x : {0.001, 0.1, 0.37, 0.6, 0.93, 0.999})
        EXPECT_NEAR(beta_cdf(x, a, b), beta_integral(x, a, b), 2e-8) << a << ' ' << b << ' ' << x;
    }
  }
  // With one parameter 1 it is a power, with poles too.
  for (const double a : {0.05, 0.3, 7.0}) {
    EXPECT_NEAR(beta_cdf(0.2, a, 1), std::pow(0.2, a), 1e-12);
    EXPECT_NEAR(beta_cdf(0.2, 1, a), 1 - std::pow(0.8, a), 1e-12);
  }
  EXPECT_EQ(beta_cdf(0, 2, 3), 0);
  EXPECT_EQ(beta_cdf(1, 2, 3), 1);
  // Next to normal: mean 0.5, standard deviation 0.001.
  EXPECT_NEAR(beta_cdf(0.501, 124999.5, 124999.5), normal_cdf(1), 1e-5);
}

}  // namespace
}  // namespace paceline::sim
