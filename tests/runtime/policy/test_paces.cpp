// How far the cost table is off, learned by length and octave of the batch; what that is worth.
#include "runtime/policy/paces.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/policy/make_draft_length.hpp"
#include "tests/runtime/policy/decoding_world.hpp"

namespace paceline::policy {
namespace {

void observe(LengthPaces& paces, int requests, int longest, double ratio) {
  for (int i = 0; i < PaceRatio::kSteps; ++i) paces.observe(requests, longest, ratio);
}
std::vector<double> factors(const LengthPaces& paces, int requests, double plain,
                            double speculative) {
  std::vector<double> out;
  paces.factors(requests, plain, speculative, out);
  return {out.begin() + 1, out.end()};
}

TEST(LengthPaces, AreByLengthAndOctaveOfTheBatch) {
  LengthPaces paces(3);
  EXPECT_EQ(factors(paces, 8, 1, 1), (std::vector<double>{1, 1, 1}));
  observe(paces, 4, 2, 1.5);
  EXPECT_EQ(factors(paces, 4, 1, 1), (std::vector<double>{1, 1.5, 1}));
  EXPECT_EQ(factors(paces, 7, 1, 1), (std::vector<double>{1, 1.5, 1})) << "the same octave";
  EXPECT_EQ(factors(paces, 1, 1, 1), (std::vector<double>{1, 1, 1})) << "two octaves off";
  EXPECT_EQ(factors(paces, 4, 1, 1.5)[1], 1) << "drafts as a whole are that slow";
}

TEST(LengthPaces, NeighboursShareWhatTheyLearned) {
  LengthPaces paces(2);
  observe(paces, 4, 1, 1.2);
  EXPECT_EQ(factors(paces, 2, 1, 1)[0], 1.2);
  EXPECT_EQ(factors(paces, 15, 1, 1)[0], 1.2);
  observe(paces, 16, 1, 1.4);
  EXPECT_DOUBLE_EQ(factors(paces, 8, 1, 1)[0], 1.3);
  observe(paces, 8, 1, 0.9);
  EXPECT_EQ(factors(paces, 8, 1, 1)[0], 0.9);
}

TEST(LengthPaces, WhatIsNotKnownIsHalfwayBackToTheTable) {
  const LengthPaces paces(1);
  EXPECT_DOUBLE_EQ(factors(paces, 8, 1, 1.44)[0], 1 / 1.2);
}

TEST(LengthPaces, AFewStepsTellNothing) {
  LengthPaces paces(1);
  for (int i = 0; i < PaceRatio::kSteps / 2; ++i) paces.observe(1, 1, 2);
  EXPECT_EQ(factors(paces, 1, 1, 1)[0], 1);
}

/// Of the best fixed length, mean over seeds.
double share(SpeculationPolicy name, WorldOptions options) {
  double sum = 0;
  constexpr int kSeeds = 3;
  for (options.seed = 1; options.seed <= kSeeds; ++options.seed) {
    World world(options);
    const auto policy = make_draft_length(name, world.cost_table(), 8, 1);
    sum += world.run(*policy).rate() / best_fixed_rate(options) / kSeeds;
  }
  return sum;
}

TEST(NightjarShared, FindsTheLengthsThatAWrongTableHides) {
  // Rows past 64 cost what they do, but the table has many of them too cheap.
  WorldOptions options;
  options.round = [](double n) { return 0.1 * gpu_step(n); };
  options.catch_up = 0.1 * gpu_step(512) / 512;
  options.acceptance.assign(16, 0.8);
  options.table_error = [](double rows) { return std::pow(rows, -0.1); };
  const double goodput = share(SpeculationPolicy::goodput, options);
  const double shared = share(SpeculationPolicy::nightjar_shared, options);
  EXPECT_LT(goodput, 0.93);
  EXPECT_GT(shared, 0.97);
}

TEST(NightjarShared, LosesNothingWhereTheTableIsRight) {
  WorldOptions options;
  options.step = cpu_step;
  options.round = [](double n) { return 0.1 * cpu_step(n); };
  for (const int batch : {1, 4, 16}) {
    options.acceptance.assign(batch, 0.8);
    EXPECT_GT(share(SpeculationPolicy::nightjar_shared, options),
              share(SpeculationPolicy::goodput, options) - 0.01)
        << batch;
  }
}

}  // namespace
}  // namespace paceline::policy
