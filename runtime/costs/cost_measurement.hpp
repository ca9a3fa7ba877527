// Measures what steps and drafts cost on the machine at hand, with made-up requests.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/step_runner.hpp"

namespace paceline {

/// The measured engine and drafters, a verifier's, as a run uses them.
struct MeasuredEngine {
  engine::StepRunner& runner;
  engine::ExecutorLimits limits;  ///< of the runner
  int vocab = 0;                  ///< tokens
  struct NamedDrafter {
    std::string name;
    draft::Drafter& drafter;
  };
  std::vector<NamedDrafter> drafters;
  int max_length = 8;  ///< most rounds of a draft
  int paths = 1;       ///< paths of a draft tree
  int owners = 1;      ///< ranks that have the KV of their own requests (kv/block_owners.hpp)
};

struct MeasurementBudget {
  double seconds = 2;
  /// Most time as a share of the work foreseen: `steps_foreseen` steps of a full batch, each as
  /// long as the first that is measured.
  double share = 0.01;
  double steps_foreseen = std::numeric_limits<double>::infinity();
};

struct CostMeasurement {
  CostTable table;       ///< conditions and transfers are left to the caller
  double seconds = 0;    ///< seconds that measuring took
  int measurements = 0;  ///< steps and drafts that were timed
};

/// Nothing may run in the engine meanwhile; afterwards the KV pool holds rubbish, and drafters know
/// nothing that a run would ask them for. Members of a tensor-parallel group follow as in a run.
///
/// All points are measured in turn, over and over in a changing order: a burst of other work hits
/// one measurement of many points instead of all of one. The lower quartile of a point's times
/// counts: whatever else the machine does only adds to them, but the least of many short times
/// would be luckier than the least of few long ones.
/// The budget is kept to but for one step of the full batch, one of one row, and a draft for each:
/// without these there is no table.
[[nodiscard]] CostMeasurement measure_costs(const MeasuredEngine& engine, const Clock& clock,
                                            const MeasurementBudget& budget);

}  // namespace paceline
