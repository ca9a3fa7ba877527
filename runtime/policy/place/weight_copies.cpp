#include "runtime/policy/place/weight_copies.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace paceline::policy {
namespace {

/// Node, NUMA domains, and the rank itself if it shares nothing, else -1.
using Memory = std::tuple<int, std::uint64_t, int>;

Memory memory_of(std::span<const WeightHolder> holders, int rank) {
  const WeightHolder& holder = holders[rank];
  return {holder.node, holder.numa_nodes, holder.shares ? -1 : rank};
}

}  // namespace

std::vector<WeightCopy> weight_copies(std::span<const WeightHolder> holders) {
  std::map<std::pair<Memory, WeightsId>, std::vector<int>> ranks;
  for (int rank = 0; rank < static_cast<int>(holders.size()); ++rank) {
    for (const WeightsId& id : holders[rank].weights)
      ranks[{memory_of(holders, rank), id}].push_back(rank);
  }
  std::vector<WeightCopy> copies;
  for (auto& [key, of_copy] : ranks) copies.push_back({key.second, std::move(of_copy)});
  return copies;
}

int least_sharers(std::span<const WeightHolder> holders) {
  std::map<Memory, int> ranks;
  for (int rank = 0; rank < static_cast<int>(holders.size()); ++rank)
    ++ranks[memory_of(holders, rank)];
  int least = static_cast<int>(holders.size());
  for (const auto& [memory, count] : ranks) least = std::min(least, count);
  return least;
}

}  // namespace paceline::policy
