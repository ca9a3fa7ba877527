#include "runtime/policy/schedule/racing.hpp"

#include <algorithm>
#include <map>

#include "runtime/policy/schedule/best_of_n.hpp"

namespace paceline::policy {

bool is_freed(const RunState& run, const GroupState& group) {
  const int leader = group.ranks.leader;
  return group.active == 0 && group.room > 0 && run.requests.held_by(leader) == 0 &&
         std::none_of(run.requests.moves().begin(), run.requests.moves().end(),
                      [&](const auto& move) { return move.second == leader; });
}

std::vector<RaceOrder> races_due(const RunState& run, const RacingOptions& options) {
  const RequestTable& table = run.requests;
  if (options.methods == 0 || !table.waiting().empty() || table.leased().empty()) return {};
  std::vector<int> freed;  // leaders of groups that do not race yet; the others are in `racing`
  std::map<int, Racer> racing;
  for (const GroupState& group : run.groups) {
    if (is_freed(run, group)) freed.push_back(group.ranks.leader);
  }
  if (freed.empty()) return {};
  std::map<RequestId, std::vector<int>> methods;  // methods of the request's races
  for (const auto& [key, race] : table.races()) {
    methods[race.id].push_back(race.method);
    const auto at = std::find(freed.begin(), freed.end(), race.group);
    if (at != freed.end()) {
      freed.erase(at);
      racing[race.group] = {race.group, race.method};
    }
    if (racing.contains(race.group)) ++racing[race.group].load;
  }

  std::vector<RequestId> ids;
  std::vector<TailRequest> requests;
  for (const auto& [id, request] : table.leased()) {
    if (request.ended || table.moves().contains(id)) continue;
    TailRequest& tail = requests.emplace_back(request.acceptance, methods[id]);
    if (request.method) tail.methods.push_back(*request.method);
    // A racer that had no room, or came to the end, would do so again.
    tail.methods.insert(tail.methods.end(), request.raced.begin(), request.raced.end());
    ids.push_back(id);
  }
  std::vector<Racer> racers;
  for (const auto& [leader, racer] : racing) racers.push_back(racer);
  std::vector<RaceOrder> orders;
  for (const RacerAssignment& a : assign_best_of_n({.requests = requests,
                                  .methods = options.methods,
                                  .racers = racers,
                                  .freed = freed,
                                  .max_batch = options.max_batch})
                                      .added)
    orders.push_back({ids[a.request], a.worker, a.method});
  return orders;
}

}  // namespace paceline::policy
