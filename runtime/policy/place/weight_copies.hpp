// Copies of weights in memory: one for all ranks whose cores are in the same NUMA domains. A copy
// in another domain would be read through the link between domains at every step.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/optional_index.hpp"

namespace paceline::policy {

/// Weights that a rank may need: a share of the target, or one that is not cut: a draft model, a
/// head, or the target's tower for pictures.
struct WeightsId {
  OptionalIndex drafter = {};  ///< index of the run's drafter; absent: the target
  std::int32_t tp = 1;         ///< number of shares of the target; 1: not cut
  std::int32_t share = 0;
  bool tower = false;  ///< the target's tower
  friend auto operator<=>(const WeightsId&, const WeightsId&) = default;
};

/// A rank's memory, and the weights that it needs.
struct WeightHolder {
  int node = 0;
  std::uint64_t numa_nodes = 1;    ///< NUMA domains of the rank's cores, one bit each
  bool shares = false;             ///< the rank can map memory of other ranks of its node
  std::vector<WeightsId> weights;  ///< weights needed now, or perhaps later
};

/// Weights that are in memory once, and the ranks that use this copy, ascending.
struct WeightCopy {
  WeightsId id;
  std::vector<int> ranks;
};

/// Copies of the weights of all holders. `holders`: [ranks]. All ranks find the same order of
/// copies.
[[nodiscard]] std::vector<WeightCopy> weight_copies(std::span<const WeightHolder> holders);

/// Number of ranks that share memory in one set of NUMA domains: the minimum over all such sets.
/// Ranks without weights count too.
[[nodiscard]] int least_sharers(std::span<const WeightHolder> holders);

}  // namespace paceline::policy
