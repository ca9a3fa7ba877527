#include "runtime/roles/races.hpp"

#include <algorithm>
#include <stdexcept>

namespace paceline::roles {

void Races::offer(RequestId id, std::size_t response, int racer, std::uint64_t key) {
  RacedRequest& request = requests_.try_emplace(id, RacedRequest{.own = response}).first->second;
  if (!request.held || request.own != response)
    throw std::logic_error(
        "a verifier offers a race for a request that it does not hold, or offers a response of "
        "another length than it has committed");
  request.others.push_back({racer, key, response});
  tell(id, request, {});  // tells the racer what other racers have committed
}

void Races::join(RequestId id, std::size_t response, int holder, std::uint64_t key) {
  const RacedRequest joined{
      .own = response, .held = false, .others = {{holder, key, response}}, .key = key};
  if (!requests_.try_emplace(id, joined).second)
    throw std::logic_error(
        "a verifier joins a race for a request, but already takes part in a race for this request");
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
  std::vector<TokenId>& ahead = request.ahead;
  const auto agreed = std::mismatch(ahead.begin(), ahead.end(), tokens.begin(), tokens.end()).first;
  const auto count = static_cast<std::size_t>(agreed - ahead.begin());
  if (agreed != ahead.end() && count < tokens.size()) {  // another group sent a wrong token
    ahead.clear();
    for (Other& other : request.others) other.knows = std::min(other.knows, request.own + count);
  } else {
    ahead.erase(ahead.begin(), agreed);
  }
  request.own += tokens.size();
  tell(id, request, tokens);
}

/// Sends each group in `others` the tokens that this group is not known to have. `fresh`: the
/// tokens that were just committed here.
void Races::tell(RequestId id, RacedRequest& request, std::span<const TokenId> fresh) {
  std::vector<TokenId> last(fresh.begin(), fresh.end());
  last.insert(last.end(), request.ahead.begin(), request.ahead.end());
  for (Other& other : request.others) {
    if (other.knows >= request.known()) continue;
    const auto lacks = static_cast<std::ptrdiff_t>(request.known() - other.knows);
    const protocol::RaceCommit news{.id = id,
                                    .key = other.key,
                                    .base = static_cast<std::int32_t>(other.knows),
                                    .tokens = {last.end() - lacks, last.end()}};
    mailbox_.send({other.leader, Address::Port::role}, protocol::encode(news));
    other.knows = request.known();
  }
}

std::uint64_t Races::end(RequestId id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return 0;
  for (const Other& other : at->second.others) {
    const protocol::RaceCommit last{.id = id, .key = other.key, .over = 1, .tokens = {}};
    mailbox_.send({other.leader, Address::Port::role}, protocol::encode(last));
  }
  const std::uint64_t key = at->second.key;
  requests_.erase(at);
  return key;
}

bool Races::hear(int from, const protocol::RaceCommit& news) {
  const auto at = requests_.find(news.id);
  if (at == requests_.end()) return false;  // the race has ended here
  RacedRequest& request = at->second;
  const auto other = std::ranges::find_if(
      request.others, [&](const Other& o) { return o.leader == from && o.key == news.key; });
  const bool sense = news.base >= 0 && std::ranges::all_of(news.tokens, [this](TokenId t) {
                       return t >= 0 && t < vocab_;
                     });
  if (other == request.others.end() || !sense) return false;
  const std::size_t known = request.known();
  const std::size_t said = news.base + news.tokens.size();
  if (static_cast<std::size_t>(news.base) <= known && said > known) {
    const auto fresh = news.tokens.end() - static_cast<std::ptrdiff_t>(said - known);
    request.ahead.insert(request.ahead.end(), fresh, news.tokens.end());
    if (request.held) gained_ += said - known;
  }
  other->knows = std::max(other->knows, std::min(said, request.known()));
  if (news.over != 0) request.others.erase(other);
  if (news.over != 0 && !request.held) return true;
  tell(news.id, request, {});
  return false;
}

std::span<const TokenId> Races::foretold(RequestId id) const {
  const auto at = requests_.find(id);
  return at == requests_.end() ? std::span<const TokenId>() : at->second.ahead;
}

}  // namespace paceline::roles
