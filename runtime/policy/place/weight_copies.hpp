// Copies of weights, one in memory for all ranks that have the same memory near them. A copy nearer
// to other cores would be read through the link between them at every step.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/optional_index.hpp"

namespace paceline::policy {

/// A share of the target; or a draft model, a head, or the target's tower for pictures, which are
/// not cut.
struct WeightsId {
  OptionalIndex drafter = {};  ///< index of the run's drafter; absent: the target
  std::int32_t tp = 1;         ///< shares of the whole
  std::int32_t share = 0;
  bool tower = false;  ///< of the target
  friend auto operator<=>(const WeightsId&, const WeightsId&) = default;
};

/// A rank's memory, and the weights that it needs.
struct WeightHolder {
  int node = 0;
  std::uint64_t numa_nodes = 1;    ///< NUMA nodes of its cores, a bit each
  bool shares = false;             ///< memory of other ranks of its node can be mapped
  std::vector<WeightsId> weights;  ///< needed now, or perhaps later
};

/// Weights that are in memory once, and the ranks that use them, ascending.
struct WeightCopy {
  WeightsId id;
  std::vector<int> ranks;
};

/// Copies for holders: [ranks]. All ranks find the same order.
[[nodiscard]] std::vector<WeightCopy> weight_copies(std::span<const WeightHolder> holders);

/// The fewest ranks that have one memory near them, with or without weights.
[[nodiscard]] int least_sharers(std::span<const WeightHolder> holders);

}  // namespace paceline::policy
