#include "runtime/policy/placement.hpp"

#include <algorithm>
#include <random>
#include <set>

namespace paceline::policy {

int Placement::group(int rank) const {
  const auto at = std::find_if(groups.begin(), groups.end(), [&](const GroupRanks& g) {
    return rank >= g.leader && rank < g.leader + g.tp;
  });
  return at == groups.end() ? -1 : static_cast<int>(at - groups.begin());
}

Role Placement::role(int rank) const {
  if (const int g = group(rank); g >= 0)
    return groups[g].leader == rank ? Role::verifier : Role::verifier_member;
  const bool drafts = std::any_of(drafters.begin(), drafters.end(),
                                  [&](const DrafterPlace& d) { return d.rank == rank; });
  return drafts ? Role::drafter : Role::spare;
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
    case Role::spare:
      return true;
  }
  return true;
}

Placement shuffled(const Placement& now, std::span<const int> degrees, bool drafts,
                   std::uint64_t number) {
  std::mt19937_64 random(number);
  const auto chance = [&](int of) { return static_cast<int>(random() % of); };
  Placement next;
  next.epoch = now.epoch + 1;
  next.ranks = now.ranks;
  std::vector<bool> free(now.ranks, true);
  for (const GroupRanks& g : now.groups) {
    if (chance(2) == 0) continue;
    next.groups.push_back(g);
    std::fill_n(free.begin() + g.leader, g.tp, false);
  }
  for (const DrafterPlace& d : now.drafters) {
    if (chance(2) == 0) continue;
    next.drafters.push_back(d);
    free[d.rank] = false;
  }
  const auto fits = [&](int rank, int degree) {
    return rank % degree == 0 && rank + degree <= now.ranks &&
           std::all_of(free.begin() + rank, free.begin() + rank + degree,
                       [](bool is) { return is; });
  };
  for (int rank = 0; rank < now.ranks; ++rank) {
    if (!free[rank]) continue;
    if (drafts && rank > 0 && chance(4) == 0) {
      next.drafters.push_back({rank, next.epoch});
      free[rank] = false;
      continue;
    }
    if (chance(6) == 0) continue;  // spare
    const int degree = degrees[chance(static_cast<int>(degrees.size()))];
    if (!fits(rank, degree)) continue;
    next.groups.push_back({rank, degree});
    std::fill_n(free.begin() + rank, degree, false);
  }
  const auto by_leader = [](const GroupRanks& a, const GroupRanks& b) {
    return a.leader < b.leader;
  };
  const auto by_rank = [](const DrafterPlace& a, const DrafterPlace& b) { return a.rank < b.rank; };
  std::sort(next.groups.begin(), next.groups.end(), by_leader);
  std::sort(next.drafters.begin(), next.drafters.end(), by_rank);
  for (DrafterPlace& d : next.drafters) {  // one that was chosen anew has been there all along
    const auto was = std::find_if(now.drafters.begin(), now.drafters.end(),
                                  [&](const DrafterPlace& n) { return n.rank == d.rank; });
    if (was != now.drafters.end()) d.since = was->since;
  }
  return next.groups.empty() ? now : next;
}

}  // namespace paceline::policy
