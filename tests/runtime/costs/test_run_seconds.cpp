#include "runtime/costs/run_seconds.hpp"

#include <gtest/gtest.h>

namespace paceline {
namespace {

/// 10 ms a step at one row, 1 ms more for each further row; 1 ms for a prompt of 10 tokens.
CostTable example() {
  CostTable costs;
  costs.decode = CostCurve({{1, 0.010}, {101, 0.110}});
  costs.prefill = CostCurve({{10, 0.001}});
  return costs;
}

RunShape shape() {
  return {.responses = 40,
          .samples = 4,
          .prompt_tokens = 10,
          .response_tokens = 100,
          .groups = 2,
          .max_batch = 10,
          .kv_positions = 100000};
}

TEST(RunSeconds, GroupsShareResponsesAndBatchesShareSteps) {
  // 20 responses a group, 10 at a time: 200 steps of 19 ms; 5 prompts.
  EXPECT_NEAR(run_seconds(example(), shape()), 200 * 0.019 + 5 * 0.001, 1e-9);
}

TEST(RunSeconds, ABatchIsNoLargerThanTheWorkOrTheMemory) {
  RunShape few = shape();
  few.responses = 6;  // 3 a group
  EXPECT_NEAR(run_seconds(example(), few), 100 * 0.012 + 0.001, 1e-9);
  RunShape little = shape();
  little.kv_positions = 250;  // two at their longest
  EXPECT_NEAR(run_seconds(example(), little), 1000 * 0.011 + 5 * 0.001, 1e-9);
  little.kv_positions = 50;  // one is waited for, however long
  EXPECT_NEAR(run_seconds(example(), little), 2000 * 0.010 + 5 * 0.001, 1e-9);
}

TEST(RunSeconds, AttentionGrowsWithTheResponse) {
  CostTable costs = example();
  costs.decode = CostCurve({{1, 0.010}, {101, 0.110}}, 1e-6);
  // Half way a response attends to 60 positions, for 10 rows.
  EXPECT_NEAR(run_seconds(costs, shape()), 200 * (0.019 + 600e-6) + 5 * 0.001, 1e-9);
}

TEST(RunSeconds, NothingTakesNoTime) {
  RunShape nothing = shape();
  nothing.responses = 0;
  EXPECT_EQ(run_seconds(example(), nothing), 0);
}

}  // namespace
}  // namespace paceline
