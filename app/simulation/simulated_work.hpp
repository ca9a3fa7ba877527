// The work of a simulated job: its requests, and how they are drafted.
#pragma once

#include <memory>

#include "app/assembly/inputs.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/sim/acceptance.hpp"
#include "runtime/sim/stop_points.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::app {

/// The trees that a run recorded of a head, by which the simulated head drafts; null: there is no
/// head. Throws UsageError where there is a head and no run, or a run without trees.
[[nodiscard]] std::unique_ptr<sim::StopPoints> recorded_trees(const io::RunConfig& config);

/// Whether simulation.workload.lengths names a run, which is then replayed.
[[nodiscard]] bool replays(const io::RunConfig& config);

/// The requests of simulation.workload, replayed from a run or drawn at random. Where no key says
/// otherwise, drawn prompts have the number and lengths of those in prompts.path. Needs the model
/// and the drafters; sets their text, and what is absent, where it reads prompts. `trees`: null
/// without a head. Throws UsageError, and as reading a run, counted lengths or prompts does.
[[nodiscard]] sim::Workload simulated_work(Inputs& inputs, const sim::StopPoints* trees);

/// The history that earlier steps of the training would have left of each drafter.
[[nodiscard]] DraftHistory history_of(const sim::AcceptanceSettings& acceptance);

}  // namespace paceline::app
