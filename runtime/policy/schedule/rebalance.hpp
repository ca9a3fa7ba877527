// Which requests change groups when some groups run dry while others are busy.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/policy/schedule/move_split.hpp"

namespace paceline::policy {

/// What a group can take, and at what price. Requests that are on their way count where they go.
struct GroupLoad {
  int room = 0;                      ///< further requests it could take
  const MoveCosts* costs = nullptr;  ///< of its steps, and of moves to it; null: unknown
};

/// A request that was leased and has not ended.
struct Movable {
  int group = 0;         ///< that holds it
  double positions = 0;  ///< of its KV
  double remaining = 0;  ///< tokens that are expected of it yet
  bool bound = false;    ///< cannot move: it does
};

struct Transferral {
  std::size_t request = 0;  ///< index of the movable
  int to = 0;               ///< group
};

/// Seconds until requests that a group has together have ended: fewer and fewer take part in a
/// step. Without costs a row takes a second.
[[nodiscard]] double drain_seconds(const MoveCosts* costs, std::span<const Movable> requests);

/// Nothing waits to be leased any more. Every group that has run dry gets requests of the one that
/// is expected to end last, as many as make the later of the two end soonest, with what the moves
/// take; none where that is no sooner. So nothing moves where steps of fewer rows are no faster, or
/// what is left is less than the move takes. Those with most to come move: they are the fewest that
/// make up the share.
///
/// Half of the requests, whatever they cost, would end as soon where rows are dear and moves cheap,
/// as a small model's on one node are: within 1 % in simulated runs. But it moves two to three
/// times as many where little is to be won, which was dearer than not moving at all by 1 to 3 % for
/// steps that wait for memory, and by up to a quarter over a slow link.
[[nodiscard]] std::vector<Transferral> rebalance(std::span<const GroupLoad> groups,
                                                 std::span<const Movable> requests);

}  // namespace paceline::policy
