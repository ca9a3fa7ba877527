// Split of a moving request's KV: one part is sent while the other is computed again.
#pragma once

#include <cstdint>

#include "runtime/costs/cost_table.hpp"

namespace paceline::policy {

/// Costs of moves to a group.
struct MoveCosts {
  CostTable table;            ///< costs of the group's prefill, and of transfers to it
  double position_bytes = 0;  ///< bytes of KV of a position on each rank of the group
};

/// Costs by position. `compute`, `transfer`: seconds for each position, > 0.
[[nodiscard]] MoveCosts costs_by_position(double compute, double transfer);

/// A split of a request's KV: the tail is transferred while the head is computed again, so that
/// both end together (SpecActor, section 4.3). The head is the part to compute, for its positions
/// attend to the fewest others.
struct MoveSplit {
  /// First position that is transferred, a multiple of a block. At or past the number of positions:
  /// nothing is transferred.
  std::int32_t first = 0;
  double seconds = 0;  ///< time until all KV is there
};
/// Finds the best split. `own_from`: a position, multiple of `block`; the destination has the KV
/// before it already. Where the costs of computing or of transfers are unknown, all the rest is
/// sent, and `seconds` is 0.
[[nodiscard]] MoveSplit split_move(const MoveCosts& costs, std::int32_t positions,
                                   std::int32_t own_from, std::int32_t block);

}  // namespace paceline::policy
