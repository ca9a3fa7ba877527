#include "runtime/speculation/draft_client.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "runtime/core/earlier_responses.hpp"
#include "runtime/protocol/message_table.hpp"

namespace paceline::speculation {

using namespace protocol;

namespace {

/// Limit, for each server, on unsent tokens of requests that have ended or left. A request's tokens
/// are dropped if they would exceed the limit.
constexpr std::size_t kMostRests = std::size_t{64} << 10;

}  // namespace

DraftClient::DraftClient(std::unique_ptr<draft::Drafter> drafter, Mailbox& mailbox,
                         const Clock& clock, DraftClientOptions options)
    : drafter_(std::move(drafter)), mailbox_(mailbox), clock_(clock), options_(std::move(options)) {
  if (options_.servers.empty()) throw std::invalid_argument("a draft client without servers");
  for (const int rank : options_.servers)
    servers_.emplace_back().at = {rank, Address::Port::draft_server};
}

DraftClient::SharedRequest& DraftClient::request(RequestId id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) throw std::logic_error("draft for a request that was not started");
  return at->second;
}

// A request that comes from another verifier already has response tokens. They count as sent,
// because the previous verifier has usually sent them. If a server lacks them, for example after a
// resume, it asks for them.
void DraftClient::start(const draft::DraftStart& start, double now) {
  const bool known = drafter_->capabilities().siblings->remembers(start.id.prompt);
  drafter_->start(start, now);
  SharedRequest& r = requests_[start.id];
  r.response.assign(start.response.begin(), start.response.end());
  r.told = r.response.size();
  Group& group = groups_[start.id.prompt];
  if (group.requests++ > 0) return;
  if (!known)
    group.place = {};  // the drafter lacks texts of the group, so the server must send all
  group.place.group = start.id.prompt;
  due_ = true;  // other verifiers might have committed many tokens for siblings
}

void DraftClient::commit(RequestId id, std::span<const TokenId> tokens, double now) {
  drafter_->commit(id, tokens, now);
  SharedRequest& r = request(id);
  r.response.insert(r.response.end(), tokens.begin(), tokens.end());
  committed_ += tokens.size();
}

void DraftClient::finish(RequestId id, double now) {
  drafter_->finish(id, now);
  end(id, true, now);
}

void DraftClient::leave(RequestId id, double now) {
  drafter_->leave(id, now);
  end(id, false, now);
}

void DraftClient::end(RequestId id, bool ended, double now) {
  const auto at = requests_.find(id);
  const SharedRequest& r = at->second;
  const std::span<const TokenId> rest = std::span(r.response).subspan(r.told);
  Server& server = server_of(id);
  if (ended || !rest.empty()) {
    const bool room = server.rest_tokens + rest.size() <= kMostRests;
    if (room) server.rest_tokens += rest.size();
    server.rests.push_back(
        {id, r.told, room ? std::vector(rest.begin(), rest.end()) : std::vector<TokenId>(), ended});
    due_ = due_ || !ended;  // the server needs the tokens before another verifier goes on
  }
  Group& group = groups_.at(id.prompt);
  --group.requests;
  group.used = now;
  requests_.erase(at);
  due_ = due_ || requests_.empty();  // without requests, the next told() might be the last
}

void DraftClient::told() {
  drafter_->told();
  const std::size_t requests = requests_.size();
  const bool enough = committed_ >= static_cast<std::size_t>(options_.exchange_tokens) * requests;
  if (due_ || (enough && committed_ > 0)) exchange();
}

void DraftClient::add(DraftUpdate& update, RequestId id, std::uint64_t offset,
                      std::span<const TokenId> tokens, bool ended) {
  update.stretches.push_back({id, offset, static_cast<std::uint32_t>(update.tokens.size()),
                              static_cast<std::uint32_t>(tokens.size()), ended});
  update.tokens.insert(update.tokens.end(), tokens.begin(), tokens.end());
}

// A server whose mailbox is full is sent nothing. The tokens for it wait for the next exchange.
void DraftClient::exchange() {
  const double now = clock_.now();
  committed_ = 0;
  due_ = false;
  for (Server& server : servers_) {
    server.update = {options_.name, {}, {}};
    server.fetch = {options_.name, 0, {}};
    server.reads = !mailbox_.full(server.at);
    if (!server.reads) continue;
    for (const Rest& rest : server.rests)
      add(server.update, rest.id, rest.offset, rest.tokens, rest.ended);
    server.rests.clear();
    server.rest_tokens = 0;
  }
  for (auto& [id, r] : requests_) {
    Server& server = server_of(id);
    if (r.told == r.response.size() || !server.reads) continue;
    add(server.update, id, r.told, std::span(r.response).subspan(r.told), false);
    r.told = r.response.size();
  }
  for (auto at = groups_.begin(); at != groups_.end();) {
    const auto& [id, group] = *at;
    const bool over = group.requests == 0 && now - group.used > options_.ttl;
    if (group.requests > 0) server_of({id, 0}).fetch.places.push_back(group.place);
    at = over ? groups_.erase(at) : std::next(at);
  }
  const auto asks = [](const Server& server) {
    return server.reads && !server.fetch.places.empty() && server.ticket == 0;
  };
  const auto asked = std::max<std::ptrdiff_t>(std::ranges::count_if(servers_, asks), 1);
  for (Server& server : servers_) {
    if (!server.reads) continue;
    if (!server.update.stretches.empty()) {
      const std::vector<std::byte> bytes = encode(server.update);
      counts_.update_bytes += bytes.size();
      mailbox_.send(server.at, bytes);
    }
    if (!asks(server)) continue;
    server.fetch.earlier = static_cast<std::uint32_t>(options_.earlier_tokens / asked);
    server.fetch.ticket = server.ticket = ++last_ticket_;
    server.asked = now;
    mailbox_.send(server.at, encode(server.fetch));
  }
  mailbox_.flush();  // so that servers work while the verifier's next step runs
}

void DraftClient::receive(int from, std::span<const std::byte> message) {
  const auto server =
      std::ranges::find_if(servers_, [from](const Server& s) { return s.at.rank == from; });
  std::optional<Message> decoded = decode_if_message(message);
  if (server == servers_.end() || !decoded) {
    ++counts_.invalid;
    return;
  }
  // An answer for an earlier client on this rank is dropped.
  const auto awaited = [&](Address, const DraftTexts& texts) {
    return texts.client == options_.name && server->ticket != 0 && texts.ticket == server->ticket;
  };
  const auto for_this_client = [&](Address, const DraftWanted& wanted) {
    return wanted.client == options_.name;
  };
  const Receipt receipt =
      protocol::receive(server->at, *decoded,
                        on<DraftTexts>(awaited,
                                       [&](Address, DraftTexts& texts) {
                                         server->ticket = 0;
                                         counts_.fetch_bytes += message.size();
                                         counts_.fetch_seconds += clock_.now() - server->asked;
                                         take(*server, texts);
                                       }),
                        on<DraftWanted>(for_this_client, [&](Address, DraftWanted& wanted) {
                          for (const DraftWanted::Missing& missing : wanted.missing) {
                            const auto at = requests_.find(missing.id);
                            if (at == requests_.end())
                              continue;  // the server will ask the request's present verifier
                            at->second.told = std::min<std::size_t>(at->second.told, missing.held);
                            due_ = true;
                          }
                        }));
  if (receipt == Receipt::unknown) ++counts_.invalid;
}

void DraftClient::take(Server& server, const DraftTexts& texts) {
  const double now = clock_.now();
  const std::span<const TokenId> all = texts.tokens;
  for (const DraftStretch& stretch : texts.stretches) {
    const bool inside = stretch.first <= all.size() && stretch.count <= all.size() - stretch.first;
    const auto tokens = inside ? all.subspan(stretch.first, stretch.count) : all.first(0);
    const bool valid =
        inside && stretch.age <= kOldestStep && std::ranges::all_of(tokens, [this](TokenId token) {
          return token >= 0 && token < options_.vocab;
        });
    if (!valid) {
      ++counts_.invalid;
      continue;
    }
    counts_.heard += tokens.size();
    draft::SiblingLearner& siblings = *drafter_->capabilities().siblings;
    if (stretch.age > 0) {
      siblings.recall(stretch.id, stretch.age, stretch.offset, tokens, stretch.ended != 0, now);
      continue;
    }
    if (requests_.contains(stretch.id)) continue;  // requests here are known from their commits
    siblings.hear(stretch.id, stretch.offset, tokens, stretch.ended != 0, now);
  }
  for (const draft::LogPlace& place : texts.places) {
    const auto group = groups_.find(place.group);
    if (group != groups_.end() && &server_of({place.group, 0}) == &server)
      group->second.place = place;
  }
  ++counts_.fetches;
  counts_.most_behind = std::max(counts_.most_behind, texts.tokens.size() + texts.left);
  due_ = due_ || texts.left > 0 || texts.awaited != 0;
}

}  // namespace paceline::speculation
