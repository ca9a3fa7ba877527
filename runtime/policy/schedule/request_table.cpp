#include "runtime/policy/schedule/request_table.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace paceline::policy {

RequestTable::RequestTable(std::vector<Trajectory> work, std::unique_ptr<RequestOrder> order,
                           std::size_t finished_before, std::uint32_t max_tokens)
    : order_(std::move(order)),
      finished_before_(finished_before),
      finished_(finished_before),
      total_(finished_before),
      lengths_(max_tokens) {
  for (Trajectory& trajectory : work) add(std::move(trajectory));
}

void RequestTable::add(Trajectory trajectory) {
  const RequestId id = trajectory.id;
  order_->add(id, static_cast<std::uint32_t>(trajectory.tokens.size()));
  waiting_[id].trajectory = std::move(trajectory);
  ++total_;
}

void RequestTable::withdraw(RequestId id) {
  if (given_back_.contains(id) || waiting_.erase(id) == 0)
    throw std::logic_error("a request is withdrawn that is leased, or was");
  order_->remove(id);
  --total_;
}

RequestTable::Lease RequestTable::lease(RequestId id, int group, std::uint32_t until) {
  auto request = waiting_.extract(id);
  if (request.empty()) throw std::logic_error("a request is leased that does not wait");
  order_->remove(id);
  given_back_.erase(id);
  const auto tokens = static_cast<std::uint32_t>(request.mapped().trajectory.tokens.size());
  leased_[id] = {.group = group, .until = until, .tokens = tokens};
  ++held_[group];
  return {std::move(request.mapped()), next_version_++};
}

std::uint64_t RequestTable::move(RequestId id, int to) {
  LeasedRequest& request = leased_.at(id);
  if (request.move != 0) throw std::logic_error("a request that moves is to move elsewhere");
  request.move = next_version_++;
  moves_[request.move] = {id, to};
  return request.move;
}

RequestMove RequestTable::take(std::uint64_t key) {
  const auto at = moves_.find(key);
  if (at == moves_.end()) throw std::logic_error("a group tells of a move that there is not");
  const RequestMove move = at->second;
  moves_.erase(at);
  return move;
}

RequestId RequestTable::moved(std::uint64_t key) {
  const RequestMove move = take(key);
  LeasedRequest& request = leased_.at(move.id);
  --held_[request.group];
  ++held_[move.to];
  request.group = move.to;
  request.move = 0;
  ++moves_made_;
  return move.id;
}

void RequestTable::kept(std::uint64_t key) {
  const RequestMove move = take(key);
  if (const auto at = leased_.find(move.id); at != leased_.end()) at->second.move = 0;
}

void RequestTable::returned(Trajectory trajectory, const KeptKv& kv) {
  const RequestMove move = take(kv.key);
  --held_[leased_.at(move.id).group];
  leased_.erase(move.id);
  order_->add(move.id, static_cast<std::uint32_t>(trajectory.tokens.size()));
  given_back_.insert(move.id);
  waiting_[move.id] = {std::move(trajectory), kv};
}

void RequestTable::grew(RequestId id, std::uint32_t tokens) {
  if (const auto at = leased_.find(id); at != leased_.end())
    at->second.tokens = std::max(at->second.tokens, tokens);
}

void RequestTable::ended(RequestId id, std::uint32_t tokens) {
  lengths_.ended(tokens);
  order_->ended(id, tokens);
  if (const auto at = leased_.find(id); at != leased_.end()) at->second.ended = true;
}

void RequestTable::drafted(RequestId id, int method, double acceptance) {
  const auto at = leased_.find(id);
  if (at == leased_.end()) return;
  at->second.method = method;
  at->second.acceptance = acceptance;
}

std::uint64_t RequestTable::race(const Race& race) {
  if (leased_.at(race.id).move != 0) throw std::logic_error("a race for a request that moves");
  races_[next_version_] = race;
  return next_version_++;
}

void RequestTable::race_began(std::uint64_t key) {
  const auto at = races_.find(key);
  if (at == races_.end()) throw std::logic_error("a group tells of a race that there is not");
  at->second.running = true;
  ++races_begun_;
}

void RequestTable::race_ended(std::uint64_t key) {
  const auto at = races_.find(key);
  if (at == races_.end()) throw std::logic_error("a race ends that there is not");
  const auto request = leased_.find(at->second.id);
  if (request != leased_.end()) request->second.raced.push_back(at->second.method);
  races_.erase(at);
}

std::vector<std::uint64_t> RequestTable::forget_stored(int group) {
  std::vector<std::uint64_t> keys;
  for (const RequestId id : given_back_) {
    KeptKv& kv = waiting_.at(id).kv;
    if (kv.positions == 0 || kv.group.leader != group) continue;
    keys.push_back(kv.key);
    kv = {};
  }
  return keys;
}

void RequestTable::group_ended(int group) {
  std::erase_if(races_, [&](const auto& race) { return race.second.group == group; });
}

void RequestTable::finished(RequestId id, int group) {
  const auto at = leased_.find(id);
  if (at == leased_.end() || at->second.group != group)
    throw std::logic_error("a group finished a request that it does not hold");
  --held_[group];
  leased_.erase(at);
  ++finished_;
}

int RequestTable::held_by(int group) const {
  const auto at = held_.find(group);
  return at == held_.end() ? 0 : at->second;
}

}  // namespace paceline::policy
