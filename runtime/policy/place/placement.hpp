// Role of every rank, from the beginning of an epoch of the run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/optional_index.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/role.hpp"

namespace paceline::policy {

/// The ranks of a verifier group: neighbours, the leader first.
struct GroupRanks {
  std::int32_t leader = 0;
  std::int32_t tp = 1;
  bool operator==(const GroupRanks&) const = default;
};

/// Ranks of a group that have KV of a request. `owner`: index, in the group, of the rank that has
/// the KV whole; absent: each rank has a part.
[[nodiscard]] constexpr GroupRanks holders(const GroupRanks& group, OptionalIndex owner) {
  return owner ? GroupRanks{group.leader + *owner, 1} : group;
}

/// A drafter rank, which drafts since the epoch `since`. A rank that had another role in between is
/// another drafter: it knows nothing of the messages that the earlier one got.
struct DrafterPlace {
  std::int32_t rank = 0;
  std::uint32_t since = 0;
  /// Index, among the run's drafters, of the one that this rank uses; absent: it uses all, in their
  /// order.
  OptionalIndex method = {};
  OptionalIndex group = {};  ///< leader of the only group that it drafts for; absent: for all
  bool operator==(const DrafterPlace&) const = default;
};

/// How requests are dealt to drafter ranks.
enum class DrafterDeal : std::uint8_t {
  /// Siblings go to different ranks. All groups deal alike, so the ranks draft for equally many
  /// requests of a whole prompt, and the last requests, often siblings, have a rank each.
  by_request,
  /// Siblings go to one rank: for drafters that draft a request better the more siblings they know.
  by_prompt,
};

/// The drafter rank of a request. Returns nullptr where there are no drafters.
///
/// In simulation (specactor-lognormal.yaml, all mechanisms but best of N) by_request takes 0.976 of
/// by_prompt's seconds on 16 GPUs (seeds 1 to 6: 0.956 to 1.017) and 0.991 on 32 (1 to 4). A rank
/// chosen by the present loads of all ranks takes 0.976 and 0.977, but then groups would have to
/// tell one another their loads. By the loads of the group's own requests it takes 0.983 and,
/// under seeds 1 and 2, 0.992.
[[nodiscard]] inline const DrafterPlace* drafter_for(RequestId id, DrafterDeal deal,
                                                     std::span<const DrafterPlace> drafters) {
  if (drafters.empty()) return nullptr;
  const std::uint32_t sample = deal == DrafterDeal::by_request ? id.sample : 0;
  return &drafters[(std::uint64_t{id.prompt} + sample) % drafters.size()];
}

/// Ranks that draft by `method` only for this group. If `method` is absent: the ranks that draft
/// for all groups, by all drafters.
[[nodiscard]] std::vector<DrafterPlace> drafters_of(std::int32_t group, OptionalIndex method,
                                                    std::span<const DrafterPlace> drafters);

/// The role of every rank. A rank without a role is spare. Rank 0 never drafts: the coordinator
/// runs there, and most messages from a drafter's rank are not trusted.
struct Placement {
  std::uint32_t epoch = 0;  ///< 0: the layout's placement
  std::int32_t ranks = 0;
  std::vector<GroupRanks> groups;      ///< by leader, which is a multiple of the group's degree
  std::vector<DrafterPlace> drafters;  ///< ascending by rank
  bool operator==(const Placement&) const = default;

  [[nodiscard]] Role role(int rank) const;
  /// Index of the rank's group; -1: none.
  [[nodiscard]] int group(int rank) const;
  /// The rank's place as a drafter; null: none.
  [[nodiscard]] const DrafterPlace* drafter(int rank) const;
  /// Degree of the smallest groups. Each of their ranks holds a larger share of the weights than
  /// other ranks.
  [[nodiscard]] int least_tp() const;
  /// All degrees in use, ascending.
  [[nodiscard]] std::vector<int> degrees() const;
};

/// Whether the rank keeps its role and its place when `after` follows `before`.
[[nodiscard]] bool stays(int rank, const Placement& before, const Placement& after);

}  // namespace paceline::policy
