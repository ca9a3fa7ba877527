// Groups of slot moves that must wait for one another because they share a slot, directly or
// through other moves. The sequences of a batch share no slots, so their moves in a step run at the
// same time.
#include <algorithm>
#include <unordered_map>

#include "kernels/cuda/kv_copy.hpp"

namespace paceline::kernels::cuda {

std::vector<GroupedMove> grouped(std::span<const Backend::SlotMove> moves) {
  const auto count = static_cast<std::int32_t>(moves.size());
  std::vector<std::int32_t> leader(moves.size());  // the first move of a group leads the others
  const auto find = [&leader](std::int32_t i) {
    while (leader[i] != i) i = leader[i] = leader[leader[i]];
    return i;
  };
  std::unordered_map<std::uint64_t, std::int32_t> by_slot;
  const auto touch = [&](std::int32_t i, std::int32_t block, std::int32_t slot) {
    const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(block)) << 32 |
                              static_cast<std::uint32_t>(slot);
    const auto [other, first] = by_slot.try_emplace(key, i);
    if (first) return;
    const std::int32_t mine = find(i);
    const std::int32_t others = find(other->second);
    leader[std::max(mine, others)] = std::min(mine, others);
  };
  for (std::int32_t i = 0; i < count; ++i) {
    leader[i] = i;
    touch(i, moves[i].from_block, moves[i].from_slot);
    touch(i, moves[i].to_block, moves[i].to_slot);
  }
  std::vector<std::int32_t> order(moves.size());
  for (std::int32_t i = 0; i < count; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return find(a) < find(b); });
  std::vector<GroupedMove> result(moves.size());
  for (std::int32_t i = 0, first = 0; i < count; ++i) {
    if (find(order[i]) != find(order[first])) first = i;
    result[i].move = moves[order[i]];
    ++result[first].group;
  }
  return result;
}

}  // namespace paceline::kernels::cuda
