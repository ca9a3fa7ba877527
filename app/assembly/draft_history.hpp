// Acceptance of drafts, kept from one rollout to the next: it is read at the start of a run, and
// updated at the end.
#pragma once

#include <span>

#include "app/assembly/plan.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// Name of the suffix drafter, in the history and in texts, if its trees began with responses of
/// earlier steps (speculation.history). Its drafts are then accepted more often, at the same costs.
/// A rank's drafts count under this name if the rank had earlier responses for most of them.
inline constexpr const char* kSuffixWithHistory = "suffix+history";

/// The history stored next to engine.profile; empty: there is none. With speculation.history, the
/// suffix drafter has the rates of kSuffixWithHistory. Throws as reading a history does.
[[nodiscard]] DraftHistory earlier_drafts(const io::RunConfig& config);

/// Sums all ranks' counts of drafts tried and accepted. `own`: the counts of this rank, from
/// RankLife::drafts(). Collective; only rank 0 gets the sum.
[[nodiscard]] DraftHistory sum_drafts(const fabric::MpiEnvironment& mpi, const Plan& plan,
                                      std::span<const DraftTally> own);

/// Adds `drafts` to the history next to engine.profile, if the profile holds here and
/// speculation.keep_history is on. The first attempt at a rollout makes earlier rollouts count
/// less. Later attempts, which belong to the same rollout, do not, even if the first was killed.
/// Without drafts in the run the file stays as it is. The file is read, changed and replaced as a
/// whole: of two runs that end at the same moment, only the later one's drafts are counted. A
/// failure only gives a warning, for the run's results are safe. Call on rank 0.
void keep_drafts(const Inputs& inputs, const Plan& plan, const DraftHistory& drafts,
                 bool first_attempt);

}  // namespace paceline::app
