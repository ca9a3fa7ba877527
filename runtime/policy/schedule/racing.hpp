// When freed groups race for the last requests, and for which (SpecActor, section 4.2).
#pragma once

#include <vector>

#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::policy {

/// Of best-of-N.
struct RacingOptions {
  int methods = 0;    ///< that verifiers can draft by, the best of the ladder first
  int max_batch = 8;  ///< b_max: requests of one racer
};

/// The group holds no request, and is to get none: a freed worker.
[[nodiscard]] bool is_freed(const RunState& run, const GroupState& group);

/// Algorithm 3 (best_of_n.hpp) on a run: groups that have run dry are the freed workers, with what
/// they race for already. Nothing while requests wait to be leased, or for groups that have
/// requests or are to get some: they begin no further races. A request is raced for once by each
/// method; a racer that gave up had no room, or came to the end, and would do so again.
///
/// A group drafts for itself or is drafted for by drafter ranks, whatever the method is: as a racer
/// it is "coupled" in Algorithm 3's words. What ranks of freed groups do as drafters is apart from
/// that (tail_drafters.hpp).
[[nodiscard]] std::vector<RaceOrder> races_due(const RunState& run, const RacingOptions& options);

}  // namespace paceline::policy
