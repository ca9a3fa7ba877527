#include "runtime/roles/draft_server.hpp"

#include <algorithm>
#include <optional>
#include <span>

#include "runtime/protocol/message_table.hpp"

namespace paceline::roles {

using namespace protocol;

namespace {

constexpr int kMostMessages = 256;  ///< limit on messages read before fetches are answered
/// Limit on an answer's tokens of this training step, and the same limit again on its tokens of
/// earlier training steps. Most answers fit into a mailbox's window of 256 KiB.
constexpr std::size_t kMostTokens = std::size_t{48} << 10;
constexpr double kLookSeconds = 1;  ///< seconds between two searches for expired logs

}  // namespace

// Asks verifiers for missing tokens only after all updates: when a request has moved, an update by
// its old verifier may come late, and fill the gap before the new verifier's tokens.
Turn DraftServer::turn() {
  Turn turn;
  const auto the_first_server = [this](const Address& from, const EarlierFound&) {
    return earlier_ != nullptr && !servers_.empty() &&
           from == Address{servers_.front(), Address::Port::draft_server};
  };
  for (int n = 0; n < kMostMessages; ++n) {
    std::optional<Envelope> envelope = mailbox_.poll();
    if (!envelope) break;
    turn.worked = true;
    std::optional<Message> message = decode_if_message(envelope->bytes);
    const Receipt receipt =
        !message ? Receipt::unknown
                 : receive(envelope->from, *message,
                           on<DraftUpdate>(
                               anybody,
                               [this](Address from, DraftUpdate& update) { apply(from, update); }),
                           on<DraftFetch>(anybody,
                                          [this](Address from, DraftFetch& fetch) {
                                            askers_.push_back({from, std::move(fetch)});
                                          }),
                           on<EarlierFound>(the_first_server, [this](Address, EarlierFound& found) {
                             if (!earlier_->learn(found.found)) ++nonsense_;
                           }));
    if (receipt != Receipt::handled) ++nonsense_;
  }
  for (Asker& asker : askers_) answer(asker);
  askers_.clear();
  ask_for_gaps();
  if (work_on_earlier()) turn.worked = true;
  const double now = clock_.now();
  if (now - looked_ >= kLookSeconds) {
    logs_.expire(now);
    looked_ = now;
  }
  return turn;
}

void DraftServer::apply(Address from, const DraftUpdate& update) {
  const double now = clock_.now();
  const std::span<const TokenId> all = update.tokens;
  for (const DraftStretch& stretch : update.stretches) {
    if (stretch.first > all.size() || stretch.count > all.size() - stretch.first ||
        stretch.age != 0) {
      ++nonsense_;
      continue;
    }
    const auto tokens = all.subspan(stretch.first, stretch.count);
    const std::uint64_t held = logs_.update(stretch.id, stretch.offset, tokens, update.client, now);
    if (stretch.ended != 0) {
      logs_.end(stretch.id, update.client, now);
      // The client has forgotten the request, so it could not fill the gap.
      const auto gap = gaps_.find(stretch.id);
      if (gap != gaps_.end() && gap->second.client == update.client) gaps_.erase(gap);
    } else if (held < stretch.offset) {
      gaps_[stretch.id] = {from, update.client, stretch.offset};
    }
  }
}

void DraftServer::answer(Asker& asker) {
  DraftTexts answer;
  answer.client = asker.fetch.client;
  answer.ticket = asker.fetch.ticket;
  answer.places = std::move(asker.fetch.places);
  texts_.clear();
  std::size_t taken = 0;
  for (draft::LogPlace& place : answer.places) {
    if (earlier_ != nullptr && logs_.first_asked(place.group, clock_.now()))
      earlier_->want(place.group);
    const std::size_t before = texts_.size();
    answer.left += logs_.fetch(place, answer.client, kMostTokens - std::min(kMostTokens, taken),
                               clock_.now(), texts_);
    for (std::size_t i = before; i < texts_.size(); ++i) taken += texts_[i].tokens.size();
    if (earlier_ != nullptr && earlier_->awaits(place.group)) answer.awaited = 1;
  }
  add_earlier(answer, std::min<std::size_t>(asker.fetch.earlier, kMostTokens));
  for (const draft::LoggedText& text : texts_) {
    answer.stretches.push_back(
        {text.id, text.offset, static_cast<std::uint32_t>(answer.tokens.size()),
         static_cast<std::uint32_t>(text.tokens.size()), text.ended, text.age});
    answer.tokens.insert(answer.tokens.end(), text.tokens.begin(), text.tokens.end());
  }
  mailbox_.send(asker.at, encode(answer));
}

/// Adds at most `most` tokens of earlier training steps' responses to texts_. Prompts of which the
/// asker lacks such tokens get equal shares. The unused part of a share goes to later prompts.
void DraftServer::add_earlier(DraftTexts& answer, std::size_t most) {
  if (earlier_ == nullptr) return;
  std::vector<draft::LogPlace*> lacking;
  for (draft::LogPlace& place : answer.places)
    if (logs_.left_earlier(place) > 0) lacking.push_back(&place);
  for (std::size_t i = 0; i < lacking.size(); ++i) {
    const std::size_t before = texts_.size();
    logs_.fetch_earlier(*lacking[i], most / (lacking.size() - i), clock_.now(), texts_);
    for (std::size_t t = before; t < texts_.size(); ++t) most -= texts_[t].tokens.size();
    answer.left += logs_.left_earlier(*lacking[i]);
  }
}

/// Searches an earlier run, or reads one step's responses to a prompt. False: nothing was to do.
bool DraftServer::work_on_earlier() {
  if (earlier_ == nullptr) return false;
  const auto tell = [this](std::uint32_t reader, std::span<const std::byte> found) {
    mailbox_.send({servers_.at(reader), Address::Port::draft_server},
                  encode(EarlierFound{{found.begin(), found.end()}}));
  };
  const auto use = [this](RequestId id, std::uint32_t age, std::span<const TokenId> tokens) {
    logs_.add_earlier(id, age, tokens, clock_.now());
  };
  return earlier_->work(tell, use);
}

void DraftServer::ask_for_gaps() {
  std::map<draft::LogClient, std::pair<Address, DraftWanted>> asks;
  for (const auto& [id, teller] : gaps_) {
    const std::uint64_t held = logs_.held(id);
    if (held >= teller.offset) continue;  // the gap has been filled
    auto& [at, wanted] = asks[teller.client];
    at = teller.at;
    wanted.client = teller.client;
    wanted.missing.push_back({id, held});
  }
  gaps_.clear();
  for (const auto& [client, ask] : asks) mailbox_.send(ask.first, encode(ask.second));
}

}  // namespace paceline::roles
