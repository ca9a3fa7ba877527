// The resident job: its ranks stay for one training step after another.
#pragma once

#include <functional>
#include <string>

#include "app/assembly/pregeneration.hpp"
#include "app/commands/commands.hpp"

namespace paceline::app {

/// One rollout, as rollout() does it, for a step of the job. `generated`: set on rank 0 once all
/// responses are on disk. Collective; throws JobEnded.
using RunStep = std::function<void(const RunArguments&, const ResidentStep& step, bool& generated)>;

/// Runs the requests of a folder (io/steps/step_folder.hpp) with `run`, one after another, and
/// waits for more until the folder is closed. A request with a wrong configuration, prompts or
/// weights is refused, and the job goes on. Any other fault of a run ends the job; the next job
/// takes up the same request. Collective; throws JobEnded.
void watch(const fabric::MpiEnvironment& mpi, const RunArguments& arguments,
           const std::string& folder, const RunStep& run);

}  // namespace paceline::app
