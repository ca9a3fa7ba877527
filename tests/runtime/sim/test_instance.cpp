// Steps of an instance: ranks that share experts wait for the fullest, and idle ones for none.
#include <gtest/gtest.h>

#include "runtime/sim/instance.hpp"

namespace paceline::test {
namespace {

using sim::Instance;

/// A rank's own rows take a millisecond each and its positions a microsecond; all experts a second
/// for ten rows; a GPU sends a row in ten seconds, and all rows are received in five each.
sim::InstanceCosts costs() {
  sim::InstanceCosts costs;
  costs.gpus = 3;
  costs.own.decode = CostCurve({{1, 1e-3}, {10, 10e-3}}, 1e-6);
  costs.experts = CostCurve({{1, 0.1}, {10, 1.0}});
  costs.sent = CostCurve({{1, 10.0}, {10, 100.0}});
  costs.received = CostCurve({{1, 5.0}, {10, 50.0}});
  return costs;
}

StepShape decoding(double requests, double context) {
  return {.requests = requests, .context = context};
}

TEST(Instance, AStepWaitsForTheFullestRankAndForAllRowsExperts) {
  const sim::InstanceCosts table = costs();
  Instance instance(table);
  EXPECT_DOUBLE_EQ(instance.step_seconds(0, decoding(2, 0), 0), 2e-3 + 0.2 + 20);
  // Ranks that begin later count those that are in a step: first experts of 2 + 4 rows, then of 9.
  EXPECT_DOUBLE_EQ(instance.step_seconds(1, decoding(4, 500), 0.1), 4e-3 + 4 * 500e-6 + 0.6 + 40);
  EXPECT_DOUBLE_EQ(instance.step_seconds(2, decoding(3, 0), 0.2), 4e-3 + 4 * 500e-6 + 0.9 + 45);
}

TEST(Instance, ARankThatBeginsNoStepForHalfAStepHasNoRequests) {
  const sim::InstanceCosts table = costs();
  Instance instance(table);
  const double first = instance.step_seconds(0, decoding(5, 0), 0);
  EXPECT_DOUBLE_EQ(instance.step_seconds(1, decoding(1, 0), 1.4 * first), 5e-3 + 0.6 + 50);
  EXPECT_DOUBLE_EQ(instance.step_seconds(2, decoding(1, 0), 1.6 * first), 1e-3 + 0.2 + 10);
}

}  // namespace
}  // namespace paceline::test
