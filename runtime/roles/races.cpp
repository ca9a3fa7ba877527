#include "runtime/roles/races.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::roles {

void Races::offer(RequestId id, std::span<const TokenId> response, int racer, std::uint64_t key) {
  const auto [at, added] = requests_.try_emplace(id);
  RacedRequest& request = at->second;
  if (added) {
    request.response.assign(response.begin(), response.end());
    request.own = response.size();
  }
  if (!request.held) throw std::logic_error("a racer lets another group race");
  request.others.push_back({racer, key, response.size()});
  tell(id, request);  // tokens of other racers beyond `response`
}

void Races::join(RequestId id, std::span<const TokenId> response, int holder, std::uint64_t key) {
  const auto [at, added] = requests_.try_emplace(id);
  if (!added) throw std::logic_error("a group races twice for a request");
  RacedRequest& request = at->second;
  request.response.assign(response.begin(), response.end());
  request.own = response.size();
  request.held = false;
  request.key = key;
  request.others.push_back({holder, key, response.size()});
}

bool Races::races_for(RequestId id) const {
  const auto at = requests_.find(id);
  return at != requests_.end() && !at->second.held;
}

std::vector<RequestId> Races::raced_for() const {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) {
    if (!request.held) ids.push_back(id);
  }
  return ids;
}

void Races::committed(RequestId id, std::span<const TokenId> tokens) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return;
  RacedRequest& request = at->second;
  for (const TokenId token : tokens) {
    if (request.own < request.response.size()) {
      if (request.response[request.own] == token) {
        ++request.own;
        continue;
      }
      request.response.resize(request.own);  // a racer foretold a wrong token
      for (Other& other : request.others) other.knows = std::min(other.knows, request.own);
    }
    request.response.push_back(token);
    ++request.own;
  }
  tell(id, request);
}

/// Sends every other group the tokens that it does not know yet.
void Races::tell(RequestId id, RacedRequest& request) {
  for (Other& other : request.others) {
    if (other.knows >= request.response.size()) continue;
    const auto fresh = request.response.begin() + static_cast<std::ptrdiff_t>(other.knows);
    mailbox_.send({other.leader, Address::Port::role},
                  encode(RaceCommit{id,
                                    other.key,
                                    static_cast<std::int32_t>(other.knows),
                                    0,
                                    {fresh, request.response.end()}}));
    other.knows = request.response.size();
  }
}

std::uint64_t Races::end(RequestId id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return 0;
  for (const Other& other : at->second.others)
    mailbox_.send({other.leader, Address::Port::role}, encode(RaceCommit{id, other.key, 0, 1, {}}));
  const std::uint64_t key = at->second.key;
  requests_.erase(at);
  return key;
}

bool Races::hear(int from, const RaceCommit& news) {
  const auto at = requests_.find(news.id);
  if (at == requests_.end()) return false;  // the race has ended here
  RacedRequest& request = at->second;
  const auto other =
      std::find_if(request.others.begin(), request.others.end(),
                   [&](const Other& o) { return o.leader == from && o.key == news.key; });
  const bool sense =
      news.base >= 0 && std::all_of(news.tokens.begin(), news.tokens.end(),
                                    [this](TokenId t) { return t >= 0 && t < vocab_; });
  if (other == request.others.end() || !sense) return false;
  const std::size_t known = request.response.size();
  const std::size_t said = news.base + news.tokens.size();
  if (static_cast<std::size_t>(news.base) <= known && said > known) {
    const auto fresh = news.tokens.end() - static_cast<std::ptrdiff_t>(said - known);
    request.response.insert(request.response.end(), fresh, news.tokens.end());
    if (request.held) gained_ += said - known;
  }
  other->knows = std::max(other->knows, std::min(said, request.response.size()));
  if (news.over != 0) request.others.erase(other);
  if (news.over != 0 && !request.held) return true;
  tell(news.id, request);
  return false;
}

std::span<const TokenId> Races::foretold(RequestId id) const {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return {};
  return std::span(at->second.response).subspan(at->second.own);
}

}  // namespace paceline::roles
