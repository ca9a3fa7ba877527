// Placement of draft servers.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace paceline::policy {

/// Ranks that host a draft server beside their role, one each. `asked`: number of servers; nullopt:
/// one a node. Servers are spread evenly over the nodes, on the last ranks of each, for the
/// coordinator is on the first rank of all. Throws UsageError where there are fewer ranks than
/// servers.
[[nodiscard]] std::vector<int> place_draft_servers(std::span<const int> node_of_rank,
                                                   std::optional<int> asked);

}  // namespace paceline::policy
