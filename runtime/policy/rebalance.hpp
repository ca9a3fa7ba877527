// Which requests change groups when some groups run dry while others are busy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace paceline::policy {

/// A group as the coordinator knows it. Requests that are on their way count where they go.
struct GroupLoad {
  int active = 0;  ///< requests it holds
  int room = 0;    ///< further ones it could take
};

/// A request that could move.
struct Movable {
  int group = 0;             ///< that holds it
  std::uint32_t tokens = 0;  ///< response tokens so far
};

struct Transferral {
  std::size_t request = 0;  ///< index of the movable
  int to = 0;               ///< group
};

/// Nothing waits to be leased any more. Every group that has run dry gets half of what the busiest
/// has over it, so that all end at about the same time: a step is the faster the fewer rows it has.
/// Of the busiest group's requests those with the fewest tokens move: what must be sent or computed
/// again for them is least, and most is still to come of them if they are like their siblings. A
/// group with a single request keeps it: elsewhere it would be no faster, and moving costs.
[[nodiscard]] std::vector<Transferral> rebalance(std::span<const GroupLoad> groups,
                                                 std::span<const Movable> requests);

}  // namespace paceline::policy
