#include "runtime/policy/place/placement.hpp"

#include <algorithm>
#include <iterator>
#include <set>

namespace paceline::policy {

std::vector<DrafterPlace> drafters_of(std::int32_t group, OptionalIndex method,
                                      std::span<const DrafterPlace> drafters) {
  std::vector<DrafterPlace> of_group;
  std::copy_if(drafters.begin(), drafters.end(), std::back_inserter(of_group),
               [&](const DrafterPlace& drafter) {
                 return drafter.method == method &&
                        drafter.group == (method ? OptionalIndex(group) : OptionalIndex());
               });
  return of_group;
}

int Placement::group(int rank) const {
  const auto next =
      std::upper_bound(groups.begin(), groups.end(), rank,
                       [](int r, const GroupRanks& group) { return r < group.leader; });
  if (next == groups.begin()) return -1;
  const auto at = std::prev(next);
  return rank < at->leader + at->tp ? static_cast<int>(at - groups.begin()) : -1;
}

Role Placement::role(int rank) const {
  if (const int g = group(rank); g >= 0)
    return groups[g].leader == rank ? Role::verifier : Role::verifier_member;
  return drafter(rank) != nullptr ? Role::drafter : Role::spare;
}

const DrafterPlace* Placement::drafter(int rank) const {
  const auto at =
      std::lower_bound(drafters.begin(), drafters.end(), rank,
                       [](const DrafterPlace& drafter, int r) { return drafter.rank < r; });
  return at != drafters.end() && at->rank == rank ? &*at : nullptr;
}

int Placement::least_tp() const { return degrees().front(); }

std::vector<int> Placement::degrees() const {
  std::set<int> found;
  for (const GroupRanks& g : groups) found.insert(g.tp);
  return {found.begin(), found.end()};
}

bool stays(int rank, const Placement& before, const Placement& after) {
  const Role role = before.role(rank);
  if (role != after.role(rank)) return false;
  switch (role) {
    case Role::verifier:
    case Role::verifier_member:
      return before.groups[before.group(rank)] == after.groups[after.group(rank)];
    case Role::drafter:
      return *before.drafter(rank) == *after.drafter(rank);
    case Role::spare:
      return true;
  }
  return true;
}

}  // namespace paceline::policy
