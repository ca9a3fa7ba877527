// Measures the costs of steps and drafts on this machine, with made-up requests.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/step_runner.hpp"

namespace paceline {

/// Engine and drafters of a verifier, as a run uses them.
struct MeasuredEngine {
  engine::StepRunner& runner;
  engine::ExecutorLimits limits;  ///< the runner's limits
  int vocab = 0;                  ///< tokens
  struct NamedDrafter {
    std::string name;
    draft::Drafter& drafter;
  };
  std::vector<NamedDrafter> drafters;
  int max_length = 8;  ///< limit on the rounds of a draft
  int paths = 1;       ///< paths of a draft tree
  int owners = 1;      ///< number of owners of KV in the group (kv/block_owners.hpp)
  /// Waits, for at most `patience` seconds, until the node's other measuring ranks have come to
  /// `place` too, and then for a random part of `step` seconds. Places rise, and are the same for
  /// the same step or draft on all ranks. Empty: nobody waits.
  std::function<void(std::uint64_t place, double step, double patience)> meet = {};
};

struct MeasurementBudget {
  double seconds = 2;
  /// Limit on the time, as a share of the expected work: `steps_foreseen` steps of a full batch,
  /// each as long as the first measured one.
  double share = 0.01;
  double steps_foreseen = std::numeric_limits<double>::infinity();
};

struct CostMeasurement {
  CostTable table;       ///< without conditions and transfers, which the caller sets
  double seconds = 0;    ///< seconds that measuring took
  int measurements = 0;  ///< steps and drafts that were timed
};

/// Measures costs. Nothing else may use the engine meanwhile. Afterwards the content of the KV pool
/// is undefined, and drafters know of no request. Members of a tensor-parallel group follow the
/// leader's steps as in a run.
///
/// All points (sizes of steps and drafts) are measured in turn, over and over in a changing order.
/// So a burst of other work hits one measurement of many points, not all of one. A point's cost is
/// the median of its times: other work that is always there slows down a rollout too. Ranks of a
/// node measure the same point at the same time, because they share the bandwidth of its memory,
/// and do the same kind of work in a rollout. The budget is kept, except for what a table needs: a
/// step and drafts for one request, and the same for a full batch.
[[nodiscard]] CostMeasurement measure_costs(const MeasuredEngine& engine, const Clock& clock,
                                            const MeasurementBudget& budget);

}  // namespace paceline
