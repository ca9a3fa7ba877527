// Joins groups into groups of twice the tensor-parallel degree, for the last requests. A step of a
// single request mostly reads weights, and twice the ranks read them in half the time. None of the
// papers does so. Trajectories keep their bits, by canonical segments (runtime/README.md).
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
  /// Costs of groups, and of moves to them, by degree: the layout's degrees, and the larger ones
  /// that groups may join into. Empty: no groups join.
  std::map<int, CostTable> costs = {};
  std::optional<TailMethod> drafter = {};  ///< drafter for all requests; absent: plain decoding
  SpeculationMode mode = SpeculationMode::plain;  ///< mode of the drafter
  int longest_draft = 8;
  int max_batch = 64;       ///< requests of one call of the drafter
  int drafters = 1;         ///< ranks that draft for all groups, in decoupled mode
  int kv_block = 32;        ///< positions
  int kv_blocks = INT_MAX;  ///< blocks of a group, whatever its degree
  /// [ranks] Groups join only within a node.
  std::vector<int> node_of_rank = {};
  double change_seconds = 0;  ///< time until a rank has its place in a larger group
};

/// The placement in which pairs of neighbouring groups of one degree have joined; absent if no
/// groups join.
///
/// Groups join under three conditions: no request waits to be leased; the remaining requests get
/// tokens faster in larger groups than in the present ones; and the last request ends sooner, the
/// time of the change included. The speeds are predicted (speculation_speed.hpp). Groups that have
/// no neighbour keep their degree, and get so many requests that all requests advance alike. While
/// steps have many requests, small groups are as fast, so nothing joins yet.
/// Half of the pairs join at a time, those with the fewest requests: their requests go to groups
/// that stay (roles/role_change.hpp), and come back by rebalance(), with their KV. If there is only
/// one pair, its requests have no group to go to: they are computed again, and this time is
/// included. No groups join if the fewer groups would have no room for all requests, in batches or
/// in KV. Larger groups join again if costs of twice their degree are known. Groups never come
/// apart again: more requests come only with the next training step, which begins with the layout.
[[nodiscard]] std::optional<Placement> grown_placement(const RunState& run,
                                                       const GrowthOptions& options);

}  // namespace paceline::policy
