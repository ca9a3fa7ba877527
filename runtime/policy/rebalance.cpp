#include "runtime/policy/rebalance.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::policy {

std::vector<Transferral> rebalance(std::span<const GroupLoad> groups,
                                   std::span<const Movable> requests) {
  std::vector<int> active;
  for (const GroupLoad& group : groups) active.push_back(group.active);
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return requests[a].tokens < requests[b].tokens;
  });
  std::vector<bool> moves(requests.size(), false);
  std::vector<Transferral> made;
  for (std::size_t to = 0; to < groups.size(); ++to) {
    if (groups[to].active > 0) continue;
    const auto busiest =
        static_cast<int>(std::max_element(active.begin(), active.end()) - active.begin());
    int count = std::min((active[busiest] - active[to]) / 2, groups[to].room);
    for (const std::size_t request : order) {
      if (count <= 0) break;
      if (moves[request] || requests[request].group != busiest) continue;
      moves[request] = true;
      made.push_back({request, static_cast<int>(to)});
      --active[busiest];
      ++active[to];
      --count;
    }
  }
  return made;
}

}  // namespace paceline::policy
