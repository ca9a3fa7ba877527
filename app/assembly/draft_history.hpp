// The acceptance of drafts in earlier rollouts. A file next to the cost profile (engine.profile)
// keeps this history. A run reads the file at its start, and keep_drafts() updates it at the end.
#pragma once

#include <span>

#include "app/assembly/plan.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// Name of the suffix drafter, in the history and in the plan's text, if its trees began with
/// responses of earlier steps (speculation.history). These drafters have their own record, because
/// more of their drafts are accepted. All suffix drafts of a verifier count under this name if it
/// made more than half of them with responses of earlier steps at hand.
inline constexpr const char* kSuffixWithHistory = "suffix+history";

/// Reads the history stored next to engine.profile; empty: there is none. If speculation.history is
/// set and kSuffixWithHistory has a record, this record replaces the suffix drafter's. Throws as
/// reading the file does.
[[nodiscard]] DraftHistory earlier_drafts(const io::RunConfig& config);

/// Sums each drafter's numbers of tried and of accepted draft tokens over all ranks. `own`: this
/// rank's numbers, from RankLife::drafts(). Collective; only rank 0 gets the sums.
[[nodiscard]] DraftHistory sum_drafts(const fabric::MpiEnvironment& mpi, const Plan& plan,
                                      std::span<const DraftTally> own);

/// Adds `drafts` to the history next to engine.profile, if the profile applies to this run and
/// speculation.keep_history is true. Without drafts the file stays unchanged. `first_attempt`: the
/// run was not resumed. A resumed run does not lower the weight of earlier rollouts, so a rollout
/// lowers it at most once. If two runs write the file at the same time, the drafts of one run are
/// lost. A failure only gives a warning, because the run's results are safe. Call on rank 0.
void keep_drafts(const Inputs& inputs, const Plan& plan, const DraftHistory& drafts,
                 bool first_attempt);

}  // namespace paceline::app
