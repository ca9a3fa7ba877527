#include "runtime/policy/schedule/move_split.hpp"

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
  struct Ends {
    double computing, sending;
  };
  const auto ends_at = [&](std::int32_t first) {
    const int computed = std::min(first, positions) - own_from;
    const int sent = positions - first;
    return Ends{costs.table.recompute_seconds(computed, own_from),
                sent > 0 ? *costs.table.transfer_seconds(sent * costs.position_bytes) : 0};
  };
  // A larger head ends computing later and the transfer sooner: the best split is where both end
  // together.
  const std::int32_t blocks = (positions - own_from + block - 1) / block;
  std::int32_t few = -1;
  std::int32_t many = std::max(blocks, 0);
  while (many - few > 1) {
    const std::int32_t middle = (few + many) / 2;
    const Ends ends = ends_at(own_from + middle * block);
    (ends.computing < ends.sending ? few : many) = middle;
  }
  const auto split_at = [&](std::int32_t computed) {
    const std::int32_t first = own_from + computed * block;
    const Ends ends = ends_at(first);
    return MoveSplit{first, std::max(ends.computing, ends.sending)};
  };
  const MoveSplit more = split_at(many);
  if (few < 0) return more;
  const MoveSplit fewer = split_at(few);
  return fewer.seconds <= more.seconds ? fewer : more;
}

}  // namespace paceline::policy
