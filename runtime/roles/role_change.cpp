#include "runtime/roles/role_change.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace paceline::roles {

RoleChange::RoleChange(const policy::Placement& now, policy::Placement next)
    : now_(now), next_(std::move(next)) {
  for (int rank = 0; rank < now_.ranks; ++rank) {
    if (!policy::stays(rank, now_, next_)) changing_.insert(rank);
  }
  for (const policy::GroupRanks& ranks : next_.groups) {
    if (changing_.contains(ranks.leader)) new_groups_[ranks.leader].ranks = ranks;
  }
}

RoleChange::Drain RoleChange::drain(const policy::RequestTable& requests) const {
  std::map<int, int> load;  // number of requests of groups that stay, by leader
  for (const policy::GroupRanks& group : now_.groups) {
    if (!ends(group.leader)) load[group.leader] = requests.held_by(group.leader);
  }
  Drain drain{.moves = {}, .done = true};
  for (const auto& [id, destination] : requests.moves()) {
    const auto to = load.find(destination);
    if (to != load.end()) ++to->second;
    drain.done = drain.done && (to != load.end() || destination == policy::kToTable);
  }
  // A race that does not run yet may still send a copy of its request to the racing group. If this
  // group is to end, wait until the race runs or is off. A running race ends with the group.
  for (const auto& [key, race] : requests.races())
    drain.done = drain.done && (race.running || !ends(race.group));
  for (const auto& [id, request] : requests.leased()) {
    if (!ends(request.group)) continue;
    drain.done = false;
    if (request.ended || requests.moves().contains(id)) continue;
    const auto least = std::min_element(
        load.begin(), load.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    drain.moves.push_back({id, least == load.end() ? policy::kToTable : least->first});
    if (least != load.end()) ++least->second;
  }
  return drain;
}

std::vector<RoleChange::Telling> RoleChange::tell() {
  told_ = true;
  awaited_ = changing_;
  std::vector<Telling> tellings;
  for (const int rank : changing_) {
    if (now_.role(rank) != Role::verifier_member) tellings.push_back({rank, next_});
  }
  // A verifier takes any message from its drafters as drafts. So a verifier that stays must drop a
  // drafter before the next placement is in force, in which this rank may send other messages. The
  // verifier is told now which drafters stay, and of new ones later (Coordinator::adopt()).
  policy::Placement meanwhile = next_;
  std::erase_if(meanwhile.drafters, [&](const policy::DrafterPlace& drafter) {
    return !policy::stays(drafter.rank, now_, next_);
  });
  for (const policy::GroupRanks& group : now_.groups) {
    if (ends(group.leader)) continue;
    awaited_.insert(group.leader);
    tellings.push_back({group.leader, meanwhile});
  }
  return tellings;
}

}  // namespace paceline::roles
