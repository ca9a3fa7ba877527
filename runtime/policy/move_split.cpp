#include "runtime/policy/move_split.hpp"

#include <algorithm>

namespace paceline::policy {

// Computing k blocks from own_from on takes longer with every block, the transfer of the rest less
// long. What is wanted is the k at which the later of the two ends first.
std::int32_t first_transferred(const MoveCosts& costs, std::int32_t positions,
                               std::int32_t own_from, std::int32_t block) {
  if (costs.compute <= 0) return own_from;
  const auto seconds = [&](std::int32_t first) {
    const int computed = std::min(first, positions) - own_from;
    const int sent = positions - first;
    return std::max(computed * costs.compute,
                    sent > 0 ? costs.latency + sent * costs.transfer : 0.0);
  };
  std::int32_t best = own_from;
  for (std::int32_t first = own_from; first < positions;) {
    first += block;
    if (seconds(first) < seconds(best)) best = first;
  }
  return best;
}

}  // namespace paceline::policy
