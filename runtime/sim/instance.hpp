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

  /// Seconds of a step that the rank with index `member` begins at time `now`: the most that any
  /// rank takes for its own rows, and the experts for the rows of all. Ranks need not begin at the
  /// same time, so each counts with the step that it is in. A rank that begins no step for half a
  /// step has no requests.
  double step_seconds(int member, const StepShape& shape, double now);

 private:
  struct Step {
    double own = 0;    ///< seconds of the rank's own rows
    double rows = 0;   ///< rows of the experts
    double until = 0;  ///< time at which the rank counts as idle unless it begins another
  };

  const InstanceCosts* costs_;
  std::vector<Step> last_;  ///< [gpus]
};

}  // namespace paceline::sim
