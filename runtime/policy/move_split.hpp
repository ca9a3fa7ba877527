// How much of a moving request's KV is sent, and how much is computed again meanwhile.
#pragma once

#include <cstdint>

namespace paceline::policy {

/// Seconds of either way, for the KV of one position.
struct MoveCosts {
  double compute = 0;   ///< of a position among others of a prefill; 0: unknown
  double transfer = 0;  ///< of a position among others of a transfer
  double latency = 0;   ///< before the first arrives
};

/// The first position whose KV is transferred: those before it are computed again at the same time,
/// so that both are done together (SpecActor, section 4.3). A multiple of `block`, at least
/// `own_from` (a multiple too: what lies before is there already or must be computed); `positions`
/// or more: nothing is worth transferring. Where computing costs nobody knows what, all is sent.
[[nodiscard]] std::int32_t first_transferred(const MoveCosts& costs, std::int32_t positions,
                                             std::int32_t own_from, std::int32_t block);

}  // namespace paceline::policy
