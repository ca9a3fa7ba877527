// The role of every rank, from an epoch of the run on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/optional_index.hpp"
#include "runtime/core/role.hpp"

namespace paceline::policy {

/// The ranks of a verifier group: neighbours, the leader first.
struct GroupRanks {
  std::int32_t leader = 0;
  std::int32_t tp = 1;
  bool operator==(const GroupRanks&) const = default;
};

/// The ranks of a group that have KV of a request. `owner`: index of the rank that has it whole;
/// absent: each has a part.
[[nodiscard]] constexpr GroupRanks holders(const GroupRanks& group, OptionalIndex owner) {
  return owner ? GroupRanks{group.leader + *owner, 1} : group;
}

/// A drafter rank, since the placement of this epoch. A rank that was something else in between is
/// another drafter: it knows nothing of what the first was told.
struct DrafterPlace {
  std::int32_t rank = 0;
  std::uint32_t since = 0;
  /// Index, among the run's drafters, of the one that it drafts by; absent: by all, in their order.
  OptionalIndex method = {};
  OptionalIndex group = {};  ///< leader of the only group that it drafts for; absent: all groups
  bool operator==(const DrafterPlace&) const = default;
};

/// The drafter rank of a prompt's requests: one for all of them, so that it computes the prompt
/// once and learns from all. nullptr: none.
[[nodiscard]] inline const DrafterPlace* drafter_for(std::uint32_t prompt,
                                                     std::span<const DrafterPlace> drafters) {
  return drafters.empty() ? nullptr : &drafters[prompt % drafters.size()];
}

/// Ranks that draft for the group alone by `method`; without a `method`, ranks that draft for all
/// groups by all drafters.
[[nodiscard]] std::vector<DrafterPlace> drafters_of(std::int32_t group, OptionalIndex method,
                                                    std::span<const DrafterPlace> drafters);

/// The role of every rank. A rank without one is spare. Rank 0 never drafts: the coordinator speaks
/// from there, and reports from a drafter's rank are not believed.
struct Placement {
  std::uint32_t epoch = 0;  ///< 0: the layout's
  std::int32_t ranks = 0;
  std::vector<GroupRanks> groups;      ///< by leader; a leader is a multiple of the group's degree
  std::vector<DrafterPlace> drafters;  ///< by rank
  bool operator==(const Placement&) const = default;

  [[nodiscard]] Role role(int rank) const;
  /// Index of the rank's group; -1: none.
  [[nodiscard]] int group(int rank) const;
  /// The rank's place as a drafter; null: none.
  [[nodiscard]] const DrafterPlace* drafter(int rank) const;
  /// Degree of the smallest groups, whose ranks hold most of the weights.
  [[nodiscard]] int least_tp() const;
  /// All degrees in use, ascending.
  [[nodiscard]] std::vector<int> degrees() const;
};

/// Whether the rank keeps its role and place when one placement follows the other.
[[nodiscard]] bool stays(int rank, const Placement& before, const Placement& after);

}  // namespace paceline::policy
