// How much of a moving request's KV is sent, and how much is computed again meanwhile.
#pragma once

#include <cstdint>

#include "runtime/costs/cost_table.hpp"

namespace paceline::policy {

/// What moves cost the group that requests go to.
struct MoveCosts {
  CostTable table;            ///< of its prefill and of transfers to it
  double position_bytes = 0;  ///< of KV, on each of its ranks
};

/// As if each position took so many seconds, > 0, to compute and to send.
[[nodiscard]] MoveCosts costs_by_position(double compute, double transfer);

/// The tail of a request's KV is transferred while the head is computed again, so that both are
/// done together (SpecActor, section 4.3). The head, for its positions attend to the fewest others.
struct MoveSplit {
  /// First position that is transferred, a multiple of a block; the number of positions or more:
  /// none is.
  std::int32_t first = 0;
  double seconds = 0;  ///< until all KV is there
};
/// `own_from`: a multiple of `block`; what lies before it is there already. Where computing or
/// transfers cost nobody knows what, all is sent, and takes 0 s.
[[nodiscard]] MoveSplit split_move(const MoveCosts& costs, std::int32_t positions,
                                   std::int32_t own_from, std::int32_t block);

}  // namespace paceline::policy
