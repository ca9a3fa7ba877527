// Which ranks have weights in common: one copy in memory for those that have the same memory near
// them. A copy that is nearer to other cores would be read through the link between at every step.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

namespace paceline::policy {

/// A share of the target, or a draft model or a head, which are not cut.
struct WeightsId {
  std::int32_t drafter = -1;  ///< which of the run's; -1: the target
  std::int32_t tp = 1;        ///< shares of the whole
  std::int32_t share = 0;
  friend auto operator<=>(const WeightsId&, const WeightsId&) = default;
};

/// A rank, as far as it matters here.
struct WeightHolder {
  int node = 0;
  std::uint64_t numa_nodes = 1;    ///< that its cores belong to, a bit each
  bool shares = false;             ///< it can map memory of other ranks of its node
  std::vector<WeightsId> weights;  ///< that it needs, or may come to
};

/// Weights that are in memory once, and the ranks that have them, ascending.
struct WeightCopy {
  WeightsId id;
  std::vector<int> ranks;
};

/// holders: [ranks]. In an order that all ranks find.
[[nodiscard]] std::vector<WeightCopy> weight_copies(std::span<const WeightHolder> holders);

/// Ranks that have one memory near them, with or without weights: the fewest of any.
[[nodiscard]] int least_sharers(std::span<const WeightHolder> holders);

}  // namespace paceline::policy
