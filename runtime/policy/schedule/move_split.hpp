// Split of a moving request's KV: a part is sent while the other is computed again.
#pragma once

#include <cstdint>

#include "runtime/costs/cost_table.hpp"

namespace paceline::policy {

/// Costs of moves to a group.
struct MoveCosts {
  CostTable table;            ///< its prefill, and transfers to it
  double position_bytes = 0;  ///< bytes of KV on each of its ranks
};

/// Costs of `compute` and `transfer` seconds, > 0, for each position.
[[nodiscard]] MoveCosts costs_by_position(double compute, double transfer);

/// A split of a request's KV: the tail is transferred while the head is computed again, so that
/// both end together (SpecActor, section 4.3). The head, for its positions attend to the fewest
/// others.
struct MoveSplit {
  /// First position that is transferred, a multiple of a block; at or past the number of positions
  /// none is.
  std::int32_t first = 0;
  double seconds = 0;  ///< until all KV is there
};
/// Finds the best split. `own_from`: a multiple of `block`; KV before it is there already. Where
/// the costs of computing or of transfers are unknown, all is sent, and takes 0 s.
[[nodiscard]] MoveSplit split_move(const MoveCosts& costs, std::int32_t positions,
                                   std::int32_t own_from, std::int32_t block);

}  // namespace paceline::policy
