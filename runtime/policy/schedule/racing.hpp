// Races of freed groups for the last requests (SpecActor, section 4.2).
#pragma once

#include <vector>

#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::policy {

/// Options of best-of-N.
struct RacingOptions {
  int methods = 0;    ///< number of the verifiers' methods, the best of the ladder first
  int max_batch = 8;  ///< b_max: requests of one racer
};

/// Whether the group is a freed worker: it holds no request, no move brings it one, and it has
/// room.
[[nodiscard]] bool is_freed(const RunState& run, const GroupState& group);

/// Races due by Algorithm 3 (best_of_n.hpp). Groups that have run dry are the freed workers; the
/// races that they are in already count. No races begin while requests wait to be leased, nor in
/// groups that have requests or are to get some. Each method races for a request once: a racer that
/// gave up had no room, or came to the end, and would do so again.
///
/// A racer is "coupled" in the words of Algorithm 3, whether its group drafts for itself or drafter
/// ranks draft for it. For ranks of freed groups that become drafters see tail_drafters.hpp.
[[nodiscard]] std::vector<RaceOrder> races_due(const RunState& run, const RacingOptions& options);

}  // namespace paceline::policy
