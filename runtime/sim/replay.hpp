// A real run as a workload: its prompts and lengths, and its drafters' rates.
#pragma once

#include <cstdint>

#include "runtime/core/recorded_run.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::sim {

/// The run's requests, in its order, and its drafters as methods. A drafter's mean and by_progress
/// are what was verified in the run; what is assumed of the mean, and the mean of any progress,
/// counts as 64 tokens, as in DraftHistory. Telemetry tells no requests apart, nor drafts by the
/// references they had, so that the rest is `assumed`: for each drafter the method of its name
/// there, or a draft model's (MethodAcceptance). Its spread is taken for the mean that was found,
/// with the same a + b of the Beta distribution; by_references, which by_progress contains, is left
/// empty.
///
/// A token is counted where it is the first of its draft: only of that one does telemetry say how
/// often it was tried with the text before it accepted. Of drafts of several paths each first token
/// counts, though at most one can be accepted.
///
/// Throws UsageError as check() does. `seed`: of what is drawn.
[[nodiscard]] Workload replayed_workload(const RecordedRun& run, const AcceptanceSettings& assumed,
                                         std::uint64_t seed);

}  // namespace paceline::sim
