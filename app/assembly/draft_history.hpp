// How often drafts are accepted, from one rollout to the next: read at the start of a run, and
// updated at its end.
#pragma once

#include <span>

#include "app/assembly/setup.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// The history beside engine.profile; empty where there is none. Throws as reading one does.
[[nodiscard]] DraftHistory earlier_drafts(const io::RunConfig& config);

/// What became of every rank's drafts in this run. `own`: [setup.drafters] of this rank's.
/// Collective; the sum is rank 0's alone.
[[nodiscard]] DraftHistory sum_drafts(const fabric::MpiEnvironment& mpi, const Setup& setup,
                                      std::span<const DraftTally> own);

/// Adds `drafts` to the history beside engine.profile, where that holds here and
/// speculation.keep_history says so. Earlier rollouts count less from then on, by a rollout's first
/// attempt alone: its others are part of it, and where that one was killed none of them does. A run
/// in which nothing was drafted leaves the file as it is. The file is read, changed and replaced as
/// a whole; of two runs that end at the same moment the later one's replaces the other's, whose
/// drafts are then not counted. What goes wrong is a warning, for nothing that the run has made is
/// lost by it. On rank 0.
void keep_drafts(const Setup& setup, const DraftHistory& drafts, bool first_attempt);

}  // namespace paceline::app
