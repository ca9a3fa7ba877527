// What Nightjar is compared with: DSD, BanditSpec and TETRIS; and what holds for every policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>

#include "runtime/policy/length/baselines.hpp"
#include "runtime/policy/length/make_draft_length.hpp"
#include "tests/runtime/policy/decoding_world.hpp"

namespace paceline::policy {
namespace {

/// Lengths that a policy asks for, of requests with these rates.
std::vector<int> lengths_of(DraftLengthPolicy& policy, const std::vector<double>& acceptance,
                            int room = 100) {
  const std::vector<int> longest(acceptance.size(), room);
  DraftQuery query;
  query.requests = static_cast<int>(acceptance.size());
  query.acceptance = acceptance;
  query.longest_draft = longest;
  std::vector<int> lengths(acceptance.size());
  if (policy.considers(query)) policy.choose(query, lengths);
  return lengths;
}

TEST(Dsd, TakesTheBestLengthByALine) {
  // The line of least squares: 1.5 rows - 1, so plain 0.5 s, one token 2 s.
  CostTable costs;
  costs.decode = CostCurve({{1, 1}, {2, 1}, {3, 4}});
  Dsd stepped(costs, 8);
  EXPECT_EQ(lengths_of(stepped, {0.95}), std::vector<int>{0}) << "by the table itself it pays";
  // 1 s + 0.1 s a row. Rates with 0.8: 0.909, 1.5, 1.877, 2.109, 2.241, 2.306, 2.324, 2.312.
  costs.decode = CostCurve({{1, 1.1}, {2, 1.2}, {3, 1.3}, {11, 2.1}});
  Dsd dsd(costs, 8);
  EXPECT_EQ(lengths_of(dsd, {0.8}), std::vector<int>{6});
  EXPECT_EQ(lengths_of(dsd, {0.7, 0.9}), lengths_of(dsd, {0.8, 0.8})) << "the batch's mean";
  EXPECT_EQ(lengths_of(dsd, {0.8}, 3), std::vector<int>{3});
  EXPECT_EQ(lengths_of(dsd, {0.05}), std::vector<int>{0});
}

WorldResult run(SpeculationPolicy name, const WorldOptions& options, int max_length = 8) {
  World world(options);
  return world.run(*make_draft_length(name, world.cost_table(), max_length, options.seed));
}

TEST(Dsd, StaysOffOnceItIsOff) {
  // Nothing is accepted at first, all in the end.
  WorldOptions options;
  options.acceptance.assign(1, -0.5);
  options.acceptance_drift = 1.5;
  options.step = cpu_step;
  options.round = [](double n) { return 0.1 * cpu_step(n); };
  const WorldResult dsd = run(SpeculationPolicy::dsd, options);
  ASSERT_GT(dsd.asked, 0);
  EXPECT_LT(dsd.asked_at.back(), options.steps / 4);
  EXPECT_GT(run(SpeculationPolicy::goodput, options).asked_at.back(), options.steps * 9 / 10);
  EXPECT_GT(run(SpeculationPolicy::nightjar, options).asked_at.back(), options.steps * 9 / 10);
}

TEST(BanditSpec, TakesTheHighestBound) {
  BanditSpec policy(2);
  const auto step = [&](double goodput) {
    const int length = lengths_of(policy, {0.5})[0];
    policy.observe({0, 1, 0.25 / goodput, 0.75 / goodput});
    return length;
  };
  EXPECT_EQ(step(100), 0);  // each once
  EXPECT_EQ(step(50), 1);
  EXPECT_EQ(step(200), 2);
  // Means by 200: 0.5, 0.25, 1; sqrt(2 ln 3) = 1.48 more for each.
  EXPECT_EQ(step(200), 2);
  // sqrt(2 ln 4) = 1.67 for one visit, 1.18 for two: 2.17, 1.92, 2.18.
  EXPECT_EQ(step(200), 2);
  // sqrt(2 ln 5) = 1.79, 1.04 for three: 2.29, 2.04, 2.04.
  EXPECT_EQ(step(100), 0);
}

TEST(BanditSpec, StepsThatComputePromptsTeachNothing) {
  BanditSpec policy(3);
  DraftQuery prompts;
  prompts.requests = 1;
  prompts.prefill_rows = 64;
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(policy.considers(prompts)) << "length 0 is first, until it was tried";
    policy.observe({0, 1, 0, 1});
  }
}

TEST(BanditSpec, ComesToPreferTheBestArm) {
  BanditSpec policy(4);
  std::vector<int> counts(5);
  for (int t = 0; t < 20'000; ++t) {
    const int length = lengths_of(policy, {0.5})[0];
    ++counts[length];
    policy.observe({0, 1, 0, length == 2 ? 1.0 : 2.0});
  }
  EXPECT_GT(counts[2], 19'000);
  for (const int count : counts) EXPECT_GE(count, 20);
}

TEST(Tetris, VerifiesTheLikeliestHalf) {
  Tetris policy(3);
  EXPECT_EQ(lengths_of(policy, {0.5, 0.1}), (std::vector<int>{3, 3}));
  DraftQuery query;
  query.requests = 2;
  const std::vector<double> values{0.9, 0.4, 0.3, 0.3, 0.2, 0.1};
  const std::vector<int> offsets{0, 3, 6};
  std::vector<std::uint8_t> keep(6);
  policy.select(query, {values, offsets}, keep);
  EXPECT_EQ(keep, (std::vector<std::uint8_t>{1, 1, 1, 0, 0, 0}));
  const std::vector<double> few{0.1, 0.1};
  const std::vector<int> ends{0, 1, 2};
  keep.assign(2, 0);
  policy.select(query, {few, ends}, keep);
  EXPECT_EQ(keep, (std::vector<std::uint8_t>{1, 1})) << "what was not found leaves its row";
}

class EveryPolicy : public ::testing::TestWithParam<SpeculationPolicy> {};

TEST_P(EveryPolicy, HeedsRoomAndKeepsParents) {
  WorldOptions options;
  options.acceptance.assign(6, 0.8);
  options.lengths = {3, 5, 20, 50, 90, 300};  // the world's own limits are room, too
  options.steps = 1000;
  World world(options);
  const auto policy = make_draft_length(GetParam(), world.cost_table(), 8, 1);
  const WorldResult result = world.run(*policy);
  EXPECT_EQ(result.tokens, std::accumulate(options.lengths.begin(), options.lengths.end(), 0))
      << "no request said more than it may";
}

TEST_P(EveryPolicy, AnswersEqualCallsEqually) {
  WorldOptions options;
  options.acceptance.assign(8, 0.6);
  options.steps = 500;
  options.prefill_every = 7;
  options.prefill_rows = 64;
  const WorldResult a = run(GetParam(), options);
  const WorldResult b = run(GetParam(), options);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.asked_at, b.asked_at);
  EXPECT_GT(a.asked, 0);
}

TEST_P(EveryPolicy, HasANameOfItsOwn) {
  EXPECT_EQ(std::count_if(kSpeculationPolicies.begin(), kSpeculationPolicies.end(),
                          [](SpeculationPolicy other) {
                            return std::string(name_of(other)) == name_of(GetParam());
                          }),
            1);
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy, ::testing::ValuesIn(kSpeculationPolicies),
                         [](const auto& policy) { return name_of(policy.param); });

}  // namespace
}  // namespace paceline::policy
