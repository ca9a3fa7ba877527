// Placement of draft servers.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace paceline::policy {

/// Ranks that host a draft server in addition to their role, one server each. `asked`: number of
/// servers; nullopt: one for each node. Servers are spread evenly over the nodes, on the last ranks
/// of each node, for the coordinator is on rank 0. Throws UsageError where there are fewer ranks
/// than servers.
[[nodiscard]] std::vector<int> place_draft_servers(std::span<const int> node_of_rank,
                                                   std::optional<int> asked);

}  // namespace paceline::policy
