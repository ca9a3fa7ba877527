#include "runtime/policy/place/draft_servers.hpp"

#include <map>
#include <string>

#include "runtime/core/error.hpp"

namespace paceline::policy {

std::vector<int> place_draft_servers(std::span<const int> node_of_rank, std::optional<int> asked) {
  const auto ranks = static_cast<int>(node_of_rank.size());
  if (asked && *asked > ranks) {
    throw UsageError(
        "speculation.drafters: expected at most one of the suffix drafter's servers a rank (" +
        std::to_string(ranks) + "), found " + std::to_string(*asked));
  }
  std::map<int, std::vector<int>> nodes;  // ranks of each node that host none yet
  for (int rank = 0; rank < ranks; ++rank) nodes[node_of_rank[rank]].push_back(rank);
  const int servers = asked.value_or(static_cast<int>(nodes.size()));
  std::vector<int> hosts;
  while (static_cast<int>(hosts.size()) < servers) {
    for (auto& [node, free] : nodes) {
      if (free.empty() || static_cast<int>(hosts.size()) == servers) continue;
      hosts.push_back(free.back());
      free.pop_back();
    }
  }
  return hosts;
}

}  // namespace paceline::policy
