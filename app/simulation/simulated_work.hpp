// What a simulated job is to do: its requests, and how they are drafted.
#pragma once

#include <memory>

#include "app/assembly/setup.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/sim/acceptance.hpp"
#include "runtime/sim/stop_points.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::app {

/// The trees that a run recorded of a head, by which it drafts; null: there is no head. Throws
/// UsageError where there is one and no run, or one without trees.
[[nodiscard]] std::unique_ptr<sim::StopPoints> recorded_trees(const io::RunConfig& config);

/// The requests of simulation.workload: those of a run that is replayed, or drawn, with as many and
/// as long prompts as prompts.path has where no key says otherwise. Asks for the model and the
/// drafters; sets setup.tokenizer, and what is absent, where it reads prompts. `trees`: null
/// without a head. Throws UsageError, and as reading a run, counted lengths or prompts does.
[[nodiscard]] sim::Workload simulated_work(Setup& setup, const sim::StopPoints* trees);

/// What earlier steps of the training would have seen of each drafter.
[[nodiscard]] DraftHistory history_of(const sim::AcceptanceSettings& acceptance);

}  // namespace paceline::app
