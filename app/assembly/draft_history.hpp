// How often drafts are accepted, from one rollout to the next: read at the start of a run, and
// updated at its end.
#pragma once

#include <span>

#include "app/assembly/plan.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// Name of the suffix drafter in the history, and to people, where its trees began with responses
/// of earlier steps (speculation.history): it is right more often then, at the same costs. A rank's
/// drafts are counted so where most of them were made with such responses at hand.
inline constexpr const char* kSuffixWithHistory = "suffix+history";

/// The history beside engine.profile, of the drafters as this run has them; empty where there is
/// none. Throws as reading one does.
[[nodiscard]] DraftHistory earlier_drafts(const io::RunConfig& config);

/// Sums what became of all ranks' drafts in this run. `own`: this rank's, as RankLife::drafts().
/// Collective; only rank 0 gets the sum.
[[nodiscard]] DraftHistory sum_drafts(const fabric::MpiEnvironment& mpi, const Plan& plan,
                                      std::span<const DraftTally> own);

/// Adds `drafts` to the history beside engine.profile, where the profile holds here and
/// speculation.keep_history says so. The first attempt at a rollout makes earlier rollouts count
/// less; later attempts belong to the same rollout and do not, even if the first was killed. A run
/// in which nothing was drafted leaves the file as it is. The file is read, changed and replaced as
/// a whole: of two runs that end at the same moment, only the later one's drafts are counted. A
/// failure is only warned of, for it loses nothing that the run has made. On rank 0.
void keep_drafts(const Inputs& inputs, const Plan& plan, const DraftHistory& drafts,
                 bool first_attempt);

}  // namespace paceline::app
