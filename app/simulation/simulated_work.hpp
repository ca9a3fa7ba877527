// The work of a simulated job: its requests, and the acceptance of its drafts.
#pragma once

#include <memory>

#include "app/assembly/inputs.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/sim/acceptance.hpp"
#include "runtime/sim/stop_points.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::app {

/// Reads the draft trees that a real run recorded from its draft head (record_stops), for the
/// simulated head to draft. Returns null if no head is configured. Throws as reading the run does,
/// and UsageError if a head is configured, but no run with draft trees.
[[nodiscard]] std::unique_ptr<sim::StopPoints> recorded_trees(const io::RunConfig& config);

/// Whether simulation.workload.lengths names a run, so that its responses are replayed.
[[nodiscard]] bool replays(const io::RunConfig& config);

/// Makes the requests of simulation.workload: replays them from a run, or draws them at random. By
/// default, drawn prompts have the number and the lengths of the prompts in prompts.path, if set.
/// `inputs` must have the model and the drafters; reading prompts sets other fields, such as
/// `absent`. `trees`: from recorded_trees(). Throws UsageError, and as reading files does.
[[nodiscard]] sim::Workload simulated_work(Inputs& inputs, const sim::StopPoints* trees);

/// The draft history that many training steps would leave: drafters' mean rates of acceptance.
[[nodiscard]] DraftHistory history_of(const sim::AcceptanceSettings& acceptance);

}  // namespace paceline::app
