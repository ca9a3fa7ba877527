// Races of freed groups for the last requests (SpecActor, section 4.2).
#pragma once

#include <vector>

#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::policy {

/// Options of best-of-N.
struct RacingOptions {
  int methods = 0;    ///< methods of verifiers, the best of the ladder first
  int max_batch = 8;  ///< b_max: requests of one racer
};

/// Whether the group is a freed worker: it holds no request, and is to get none.
[[nodiscard]] bool is_freed(const RunState& run, const GroupState& group);

/// Races due by Algorithm 3 (best_of_n.hpp): groups that have run dry are the freed workers, with
/// the requests that they race for already. No races begin while requests wait to be leased, nor in
/// groups that have requests or are to get some. A request is raced for once by each method: a
/// racer that gave up had no room, or came to the end, and would do so again.
///
/// A racer is "coupled" in Algorithm 3's words, whether its group drafts for itself or drafter
/// ranks draft for it. Ranks of freed groups that become drafters are another matter
/// (tail_drafters.hpp).
[[nodiscard]] std::vector<RaceOrder> races_due(const RunState& run, const RacingOptions& options);

}  // namespace paceline::policy
