// The work of a simulated job: its requests, and the acceptance of its drafts.
#pragma once

#include <memory>

#include "app/assembly/inputs.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/sim/acceptance.hpp"
#include "runtime/sim/stop_points.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::app {

/// Draft trees that a run recorded from its head, by which the simulated head drafts; null: there
/// is no head. Throws UsageError if there is a head but no run, or a run without trees.
[[nodiscard]] std::unique_ptr<sim::StopPoints> recorded_trees(const io::RunConfig& config);

/// Whether simulation.workload.lengths names a run to replay.
[[nodiscard]] bool replays(const io::RunConfig& config);

/// The requests of simulation.workload, replayed from a run or drawn at random. Unless a key says
/// otherwise, there are as many prompts as in prompts.path, with their lengths. Needs the model and
/// the drafters in `inputs`; if prompts are read, sets inputs.text and inputs.absent.
/// `trees`: null without a head. Throws UsageError, and as reading a run, lengths or prompts does.
[[nodiscard]] sim::Workload simulated_work(Inputs& inputs, const sim::StopPoints* trees);

/// The history that earlier training steps would have left: each drafter's mean acceptance.
[[nodiscard]] DraftHistory history_of(const sim::AcceptanceSettings& acceptance);

}  // namespace paceline::app
