// An instance of an engine whose GPUs have requests of their own and share a model by its experts
// (data and expert parallelism). Its GPUs step together: every layer's experts wait for the rows of
// all of them.
#pragma once

#include <vector>

#include "runtime/costs/cost_table.hpp"
#include "runtime/sim/gpu_costs.hpp"

namespace paceline::sim {

/// Seconds of steps of an instance's ranks, each of one GPU. Not thread-safe.
class Instance {
 public:
  /// `costs` must outlive this object.
  explicit Instance(const InstanceCosts& costs) : costs_(&costs), last_(costs.gpus) {}

  /// Seconds of a step that the rank with index `member` begins at time `now` (InstanceCosts).
  /// Ranks do not begin at the same time, so each counts with its last step. This is an
  /// approximation: a rank that begins late in a long step of another waits for all of that step.
  double step_seconds(int member, const StepShape& shape, double now);

 private:
  /// A rank counts for so many times the length of its last step. If it begins no further step
  /// meanwhile, it has no requests: between steps, ranks do little else.
  static constexpr double kCounts = 1.5;

  struct Step {
    double own = 0;  ///< seconds of the rank's own rows
    double rows = 0;
    double counts_until = 0;
  };

  const InstanceCosts* costs_;
  std::vector<Step> last_;  ///< [gpus]
};

}  // namespace paceline::sim
