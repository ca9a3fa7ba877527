// A real run as a workload: its prompts, its lengths and its drafters' rates.
#pragma once

#include <cstdint>

#include "runtime/core/recorded_run.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::sim {

/// The run's requests, in its order, with its drafters as methods. A drafter's mean and by_progress
/// are the rates measured in the run. As priors, the assumed mean counts as 64 tokens, and the
/// measured mean as 64 tokens of each progress, as in DraftHistory. Telemetry distinguishes neither
/// requests nor numbers of references, so everything else is from the method of the drafter's name
/// in `assumed`, or from the defaults of MethodAcceptance. The spread is scaled so that a + b of
/// the Beta distribution stays as assumed. by_references is left empty, for its effect is contained
/// in by_progress.
///
/// Only the first token of a draft is counted: only for first tokens does telemetry say how often
/// they were tried with the text before them accepted. In a draft of several paths each first token
/// counts, though at most one can be accepted.
///
/// Throws UsageError as check() does. `seed`: seeds the draws.
[[nodiscard]] Workload replayed_workload(const RecordedRun& run, const AcceptanceSettings& assumed,
                                         std::uint64_t seed);

}  // namespace paceline::sim
