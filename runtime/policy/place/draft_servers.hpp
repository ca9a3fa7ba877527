// Where draft servers are.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace paceline::policy {

/// Ranks that host a draft server beside their role, one each. `asked`: how many there are to be;
/// none: one a node. They are spread evenly over the nodes, and are the last ranks of each: the
/// coordinator is on the first of all. Throws UsageError where there are fewer ranks than are asked
/// for.
[[nodiscard]] std::vector<int> place_draft_servers(std::span<const int> node_of_rank,
                                                   std::optional<int> asked);

}  // namespace paceline::policy
