#include "runtime/roles/remote_drafter.hpp"

#include <algorithm>
#include <stdexcept>

#include "runtime/roles/messages.hpp"

namespace paceline::roles {

RemoteDrafter::RemoteDrafter(Mailbox& mailbox, std::vector<policy::DrafterPlace> drafters,
                             int vocab)
    : mailbox_(mailbox), drafters_(std::move(drafters)), vocab_(vocab) {}

void RemoteDrafter::use(std::vector<policy::DrafterPlace> drafters) {
  drafters_ = std::move(drafters);
  const auto stays = [&](const policy::DrafterPlace& drafter) {
    return std::find(drafters_.begin(), drafters_.end(), drafter) != drafters_.end();
  };
  for (auto& [id, r] : requests_) {
    const policy::DrafterPlace* now = policy::drafter_for(id.prompt, drafters_);
    if (!r.drafter || (now != nullptr && *now == *r.drafter)) continue;
    if (stays(*r.drafter)) say(id, r, DraftEnd::left);
    r.drafter.reset();
    counts_.stale += r.ahead.size();
    r.ahead.clear();
  }
  told();
  std::erase_if(outboxes_, [&](const auto& outbox) {
    return !stays({outbox.first, outbox.second.commits.since});
  });
  for (auto& [id, r] : requests_) {
    if (!r.drafter) open(id, r);
  }
}

RemoteDrafter::Request& RemoteDrafter::request(RequestId id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) throw std::logic_error("draft for a request that was not started");
  return at->second;
}

void RemoteDrafter::start(const draft::DraftStart& start, double /*now*/) {
  const auto [at, added] = requests_.try_emplace(start.id);
  if (!added) throw std::logic_error("a request was started twice");
  prompts_.try_emplace(start.id.prompt, start.prompt.begin(), start.prompt.end());
  at->second.noise = start.noise;
  at->second.move = start.move;
  at->second.response.assign(start.response.begin(), start.response.end());
  open(start.id, at->second);
}

void RemoteDrafter::open(RequestId id, Request& r) {
  const policy::DrafterPlace* drafter = policy::drafter_for(id.prompt, drafters_);
  if (drafter == nullptr) return;
  told();  // what was committed before comes before
  r.drafter = *drafter;
  r.refuted = static_cast<std::int32_t>(r.response.size());  // older pieces were not meant for it
  Outbox& outbox = outboxes_[drafter->rank];
  outbox.commits.since = drafter->since;
  const bool known = !outbox.prompts.insert(id.prompt).second;
  const std::vector<TokenId>& prompt = prompts_.at(id.prompt);
  mailbox_.send({drafter->rank, Address::Port::role},
                encode(DraftOpen{drafter->since, id, known ? std::vector<TokenId>() : prompt,
                                 r.response, r.noise, r.move}));
}

void RemoteDrafter::say(RequestId id, const Request& r, DraftEnd how) {
  outboxes_.at(r.drafter->rank)
      .commits.commits.push_back({id, static_cast<std::int32_t>(r.response.size()), 0, 0, how});
}

void RemoteDrafter::commit(RequestId id, std::span<const TokenId> tokens, double /*now*/) {
  Request& r = request(id);
  if (r.drafter) {
    DraftCommits& outbox = outboxes_.at(r.drafter->rank).commits;
    outbox.commits.push_back({id, static_cast<std::int32_t>(r.response.size()),
                              static_cast<std::int32_t>(outbox.tokens.size()),
                              static_cast<std::int32_t>(tokens.size()), DraftEnd::goes_on});
    outbox.tokens.insert(outbox.tokens.end(), tokens.begin(), tokens.end());
  }
  for (const TokenId token : tokens) {
    r.response.push_back(token);
    if (r.ahead.empty()) continue;
    if (r.ahead.front().token == token) {
      r.ahead.pop_front();
      continue;
    }
    r.refuted = static_cast<std::int32_t>(r.response.size());
    counts_.stale += r.ahead.size();
    r.ahead.clear();
  }
}

void RemoteDrafter::end(RequestId id, DraftEnd how) {
  const Request& r = request(id);
  if (r.drafter) say(id, r, how);
  counts_.stale += r.ahead.size();
  requests_.erase(id);
}

void RemoteDrafter::finish(RequestId id, double /*now*/) { end(id, DraftEnd::finished); }
void RemoteDrafter::leave(RequestId id, double /*now*/) { end(id, DraftEnd::left); }

void RemoteDrafter::told() {
  for (auto& [rank, outbox] : outboxes_) {
    if (outbox.commits.commits.empty()) continue;
    mailbox_.send({rank, Address::Port::role}, encode(outbox.commits));
    outbox.commits.commits.clear();
    outbox.commits.tokens.clear();
  }
  mailbox_.flush();  // the drafters go on while the verifier's next step runs
}

void RemoteDrafter::receive(int from, const Drafts& drafts) {
  if (drafts.scores.size() != drafts.tokens.size()) {
    ++counts_.invalid;
    return;
  }
  for (const DraftPiece& piece : drafts.pieces) {
    const auto size = static_cast<std::int64_t>(drafts.tokens.size());
    if (piece.first < 0 || piece.count < 0 || piece.base < 0 ||
        std::int64_t{piece.first} + piece.count > size) {
      ++counts_.invalid;
      continue;
    }
    counts_.drafted += piece.count;
    const auto at = requests_.find(piece.id);
    if (at != requests_.end() && at->second.drafter && at->second.drafter->rank == from) {
      take(at->second, piece, drafts);
    } else {
      counts_.stale += piece.count;  // its request has ended since, or has another drafter
    }
  }
}

// Tokens that the target has said meanwhile must be the piece's own; the others must go on from
// what is there, and have been drafted after the last refutation was known.
void RemoteDrafter::take(Request& r, const DraftPiece& piece, const Drafts& drafts) {
  const auto tokens = std::span(drafts.tokens).subspan(piece.first, piece.count);
  const auto scores = std::span(drafts.scores).subspan(piece.first, piece.count);
  const auto committed = static_cast<std::int32_t>(r.response.size());
  const std::int32_t said = std::clamp(committed - piece.base, 0, piece.count);
  const std::int32_t there = committed + static_cast<std::int32_t>(r.ahead.size());
  const bool agrees = said == 0 || std::equal(tokens.begin(), tokens.begin() + said,
                                              r.response.begin() + piece.base);
  if (!agrees) r.refuted = std::max(r.refuted, piece.base + said);
  if (!agrees || piece.epoch < r.refuted || piece.base + said != there) {
    counts_.stale += piece.count;
    return;
  }
  counts_.stale += said;
  float before = said > 0 ? scores[said - 1] : 1;
  for (std::int32_t i = said; i < piece.count; ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_ || !(scores[i] >= 0 && scores[i] <= before)) {
      ++counts_.invalid;
      return;
    }
    r.ahead.push_back({tokens[i], before > 0 ? scores[i] / before : 0});
    before = scores[i];
  }
}

void RemoteDrafter::propose(std::span<draft::DraftSlot> batch, double /*now*/,
                            draft::Levels* /*levels*/) {
  for (draft::DraftSlot& slot : batch) {
    const Request& r = request(slot.id);
    const int most = std::min({static_cast<int>(r.ahead.size()), slot.limits.max_tokens,
                               slot.limits.max_length, slot.output.capacity()});
    float path = 1;
    for (int i = 0; i < most; ++i) {
      path *= r.ahead[i].conditional;
      slot.output.set(i, r.ahead[i].token, i - 1, path);
    }
    slot.count = most;
    counts_.late += most == 0 ? 1 : 0;
  }
}

}  // namespace paceline::roles
