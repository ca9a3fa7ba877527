#include "runtime/policy/balancing_scheduler.hpp"

#include <algorithm>
#include <map>

#include "runtime/policy/leases.hpp"
#include "runtime/policy/rebalance.hpp"

namespace paceline::policy {

int BalancingScheduler::leases(const RunState& run, const GroupState& group) {
  int ranks = 0;
  for (const GroupState& g : run.groups) ranks += g.ranks.tp;
  return leases_due({.room = group.room,
                     .held = run.requests.held_by(group.ranks.leader),
                     .unfinished = run.requests.total() - run.requests.finished(),
                     .share = static_cast<double>(group.ranks.tp) / ranks});
}

/// Where nothing was worth moving, one more report will seldom change that; and of many groups
/// there are many reports, each with all requests to look at.
bool BalancingScheduler::worth_a_look(const RunState& run) {
  const auto dry = static_cast<std::size_t>(
      std::count_if(run.groups.begin(), run.groups.end(),
                    [](const GroupState& group) { return group.active == 0; }));
  const bool more = dry > dry_;
  dry_ = dry;
  if (dry == 0 || (!more && ++passed_over_ < run.groups.size())) return false;
  passed_over_ = 0;
  return true;
}

std::vector<RequestMove> BalancingScheduler::moves(const RunState& run) {
  const RequestTable& table = run.requests;
  looks_ = table.waiting() == 0 && !table.leased().empty() && worth_a_look(run);
  if (!rebalance_ || !looks_) return {};
  std::map<int, int> index;  // by leader
  std::vector<GroupLoad> loads;
  for (const GroupState& group : run.groups) {
    index[group.ranks.leader] = static_cast<int>(loads.size());
    loads.push_back({group.room, group.costs});
  }
  std::vector<Movable> requests;
  std::vector<RequestId> ids;
  std::vector<std::uint32_t> tokens;
  for (const auto& [id, request] : table.leased()) {
    const bool moves = request.move != 0;
    const auto group = index.find(moves ? table.moves().at(request.move).to : request.group);
    if (request.ended || group == index.end()) continue;  // or it leaves a group that is to end
    if (moves) --loads[group->second].room;
    const auto prompt = static_cast<double>(run.prompts[id.prompt].tokens.size());
    requests.push_back({group->second, prompt + request.tokens, 0, moves});
    ids.push_back(id);
    tokens.push_back(request.tokens);
  }
  const std::vector<double> remaining = table.lengths().remaining(tokens);
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].remaining = remaining[i];
  std::vector<RequestMove> made;
  for (const Transferral& t : rebalance(loads, requests))
    made.push_back({ids[t.request], run.groups[t.to].ranks.leader});
  return made;
}

std::vector<RaceOrder> BalancingScheduler::races(const RunState& run) {
  return looks_ ? races_due(run, racing_) : std::vector<RaceOrder>();
}

}  // namespace paceline::policy
