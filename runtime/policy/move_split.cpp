#include "runtime/policy/move_split.hpp"

#include <algorithm>

namespace paceline::policy {

MoveCosts costs_by_position(double compute, double transfer) {
  MoveCosts costs;
  costs.table.prefill = CostCurve({{1, compute}});
  costs.table.transfer = TransferCosts{0, 1 / transfer};
  costs.position_bytes = 1;
  return costs;
}

MoveSplit split_move(const MoveCosts& costs, std::int32_t positions, std::int32_t own_from,
                     std::int32_t block) {
  if (costs.table.prefill.empty() || !costs.table.transfer) return {own_from, 0};
  const auto split_at = [&](std::int32_t first) {
    const int computed = std::min(first, positions) - own_from;
    const int sent = positions - first;
    const double computing = costs.table.recompute_seconds(computed, own_from);
    const double sending =
        sent > 0 ? *costs.table.transfer_seconds(sent * costs.position_bytes) : 0;
    return MoveSplit{first, std::max(computing, sending)};
  };
  MoveSplit best = split_at(own_from);
  for (std::int32_t first = own_from; first < positions;) {
    first += block;
    const MoveSplit split = split_at(first);
    if (split.seconds < best.seconds) best = split;
  }
  return best;
}

}  // namespace paceline::policy
