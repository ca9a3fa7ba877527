// The resident job (`paceline rollout --watch DIR`). Its ranks stay alive from one training step to
// the next, and do a rollout for each request file that the trainer puts into DIR.
#pragma once

#include <functional>
#include <string>

#include "app/assembly/pregeneration.hpp"
#include "app/commands/commands.hpp"

namespace paceline::app {

/// Does the rollout of one training step. Sets `generated` on rank 0 as soon as all responses are
/// on disk, except if the step's run was complete already. Collective; throws JobEnded.
using RunStep = std::function<void(const RunArguments&, const ResidentStep& step, bool& generated)>;

/// Calls `run` for each request of a folder (io/steps/step_folder.hpp), one after another, and
/// waits for more requests until the trainer closes the folder. A request with wrong configuration,
/// prompts or weights is refused. The job then goes on, unless a rank met the fault while ranks
/// worked independently. Any other error ends the job, and the next job on this folder continues
/// the request. Collective; throws JobEnded.
void watch(const fabric::MpiEnvironment& mpi, const RunArguments& arguments,
           const std::string& folder, const RunStep& run);

}  // namespace paceline::app
