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

RequestTable::Leased RequestTable::lease(RequestId id, int group, std::uint32_t until) {
  auto request = waiting_.extract(id);
  if (request.empty()) throw std::logic_error("a request is leased that does not wait");
  order_->remove(id);
  given_back_.erase(id);
  const auto tokens = static_cast<std::uint32_t>(request.mapped().trajectory.tokens.size());
  LeasedRequest& leased = leased_[id];
  leased = {.group = group, .until = until, .tokens = tokens};
  if (id.prompt >= leased_at_.size()) leased_at_.resize(id.prompt + std::size_t{1});
  std::vector<LeasedRequest*>& siblings = leased_at_[id.prompt];
  if (id.sample >= siblings.size()) siblings.resize(id.sample + std::size_t{1});
  siblings[id.sample] = &leased;
  ++held_[group];
  return {std::move(request.mapped()), next_version_++};
}

std::uint64_t RequestTable::move(RequestId id, int to) {
  if (!leased_.contains(id)) throw std::logic_error("a request is to move that is not leased");
  if (!moves_.emplace(id, to).second)
    throw std::logic_error("a request that moves is to move elsewhere");
  return next_version_++;
}

int RequestTable::take_move(RequestId id) {
  const auto move = moves_.extract(id);
  if (move.empty()) throw std::logic_error("a group tells of a move that there is not");
  return move.mapped();
}

void RequestTable::moved(RequestId id) {
  const int to = take_move(id);
  LeasedRequest& request = leased_.at(id);
  --held_[request.group];
  ++held_[to];
  request.group = to;
  ++moves_made_;
}

void RequestTable::returned(Trajectory trajectory, const KeptKv& kv) {
  const RequestId id = trajectory.id;
  (void)take_move(id);
  --held_[leased_.at(id).group];
  forget_lease(id);
  order_->add(id, static_cast<std::uint32_t>(trajectory.tokens.size()));
  given_back_.insert(id);
  waiting_[id] = {std::move(trajectory), kv};
}

void RequestTable::grew(std::span<const RequestLength> running) {
  for (const RequestLength& r : running) {
    if (r.id.prompt >= leased_at_.size()) continue;
    const std::vector<LeasedRequest*>& siblings = leased_at_[r.id.prompt];
    LeasedRequest* leased = r.id.sample < siblings.size() ? siblings[r.id.sample] : nullptr;
    if (leased != nullptr) leased->tokens = std::max(leased->tokens, r.tokens);
  }
}

void RequestTable::forget_lease(RequestId id) {
  leased_.erase(id);
  leased_at_[id.prompt][id.sample] = nullptr;
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

std::uint64_t RequestTable::race(const RequestRace& race) {
  if (moves_.contains(race.id)) throw std::logic_error("a race for a request that moves");
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
  forget_lease(id);
  ++finished_;
}

int RequestTable::held_by(int group) const {
  const auto at = held_.find(group);
  return at == held_.end() ? 0 : at->second;
}

}  // namespace paceline::policy
