// Which rank is what, from an epoch of the run on.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/role.hpp"

namespace paceline::policy {

/// The ranks of a verifier group: neighbours, the leader first.
struct GroupRanks {
  std::int32_t leader = 0;
  std::int32_t tp = 1;
  bool operator==(const GroupRanks&) const = default;
};

/// A rank that drafts, since the placement of this epoch. One that was something else in between is
/// another drafter: it knows nothing of what the first one was told.
struct DrafterPlace {
  std::int32_t rank = 0;
  std::uint32_t since = 0;
  /// Index of the drafter that it drafts by, of all that the run has; -1: by all, in their order.
  std::int32_t method = -1;
  std::int32_t group = -1;  ///< leader of the only one that it drafts for; -1: it does so for all
  bool operator==(const DrafterPlace&) const = default;
};

/// Who drafts for the requests of a prompt: one for all of them, so that it computes the prompt
/// once and learns from all. nullptr: nobody.
[[nodiscard]] inline const DrafterPlace* drafter_for(std::uint32_t prompt,
                                                     std::span<const DrafterPlace> drafters) {
  return drafters.empty() ? nullptr : &drafters[prompt % drafters.size()];
}

/// Those that draft for the group by this drafter, -1: by all of them, for all groups.
[[nodiscard]] std::vector<DrafterPlace> drafters_of(std::int32_t group, std::int32_t method,
                                                    std::span<const DrafterPlace> drafters);

/// The place of every rank. A rank with none is a spare one. Rank 0 never drafts: the coordinator
/// speaks from there, and what comes from a drafter's rank is not believed.
struct Placement {
  std::uint32_t epoch = 0;  ///< 0: that of the layout
  std::int32_t ranks = 0;
  std::vector<GroupRanks> groups;      ///< by leader; a leader is a multiple of the group's degree
  std::vector<DrafterPlace> drafters;  ///< by rank
  bool operator==(const Placement&) const = default;

  [[nodiscard]] Role role(int rank) const;
  /// Index of the rank's group; -1: it is in none.
  [[nodiscard]] int group(int rank) const;
  /// Its place as a drafter; null: it has none.
  [[nodiscard]] const DrafterPlace* drafter(int rank) const;
  /// Degree of the smallest groups, whose ranks hold most of the weights.
  [[nodiscard]] int least_tp() const;
  /// Every degree there is, ascending.
  [[nodiscard]] std::vector<int> degrees() const;
};

/// Whether the rank goes on as what it was when one placement follows the other.
[[nodiscard]] bool stays(int rank, const Placement& before, const Placement& after);

}  // namespace paceline::policy
