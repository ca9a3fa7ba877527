// Groups that join into groups of twice the tensor-parallel degree, for the last requests: a lone
// request waits for the reading of weights, and twice the ranks read them in half the time. None of
// the papers does so. Canonical segments keep the bits.
#pragma once

#include <climits>
#include <map>
#include <optional>
#include <vector>

#include "runtime/core/speculation_mode.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/schedule/scheduler.hpp"
#include "runtime/policy/schedule/tail_drafters.hpp"

namespace paceline::policy {

struct GrowthOptions {
  /// Costs of groups, and of moves to them, by degree: the layout's, and larger ones that groups
  /// may join into. Empty: no groups join.
  std::map<int, CostTable> costs = {};
  std::optional<TailMethod> drafter = {};  ///< drafts for all requests; absent: plain decoding
  SpeculationMode mode = SpeculationMode::plain;  ///< of its drafts
  int longest_draft = 8;
  int max_batch = 64;       ///< requests of one call of the drafter
  int drafters = 1;         ///< ranks that draft for all groups, in decoupled mode
  int kv_block = 32;        ///< positions
  int kv_blocks = INT_MAX;  ///< of a group, whatever its degree
  /// [ranks] A group that joins others keeps to one node.
  std::vector<int> node_of_rank = {};
  double change_seconds = 0;  ///< until a rank has its place in a larger group
};

/// The placement in which pairs of neighbouring groups of one degree have joined; nothing where
/// ranks stay what they are.
///
/// Groups join once nothing waits to be leased, the remaining requests get tokens faster in larger
/// groups than in those there are, and the last request ends sooner by it, the change included. The
/// speeds are those of drafts and steps (speculation_speed.hpp) for requests dealt out evenly.
/// While steps have many requests they are as fast in small groups; groups join later then. The
/// pairs with the fewest requests join, half of them at a time: their requests go to groups that
/// stay (roles/role_change.hpp), and come back by rebalance(), with their KV. A single pair's
/// requests have no group to go to: they are computed again, which counts. No groups join whose
/// requests would find no room in fewer groups, in batches or in KV. Larger groups join
/// further where costs of their degree are known. Nothing comes apart again: more requests come
/// with the next step alone, which begins with the layout.
[[nodiscard]] std::optional<Placement> grown_placement(const RunState& run,
                                                       const GrowthOptions& options);

}  // namespace paceline::policy
