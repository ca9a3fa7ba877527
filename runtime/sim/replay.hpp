// A real run as a workload: its prompts and lengths, and its drafters' rates.
#pragma once

#include <cstdint>

#include "runtime/core/recorded_run.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::sim {

/// The run's requests, in its order, with its drafters as methods. A drafter's mean and by_progress
/// are the rates verified in the run; the assumed mean, and for each progress the found mean,
/// counts as 64 tokens, as in DraftHistory. Telemetry tells neither requests nor drafts by their
/// references apart, so the rest is `assumed`: each drafter's from the method of its name there, or
/// a draft model's (MethodAcceptance). The spread keeps the a + b of the Beta distribution for the
/// mean that was found; by_references, which by_progress contains, is left empty.
///
/// A token is counted where it is the first of its draft: only for first tokens does telemetry say
/// how often they were tried with the text before them accepted. Of drafts of several paths each
/// first token counts, though at most one can be accepted.
///
/// Throws UsageError as check() does. `seed`: of the draws.
[[nodiscard]] Workload replayed_workload(const RecordedRun& run, const AcceptanceSettings& assumed,
                                         std::uint64_t seed);

}  // namespace paceline::sim
