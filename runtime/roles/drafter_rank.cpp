#include "runtime/roles/drafter_rank.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "runtime/core/role.hpp"
#include "runtime/protocol/message_table.hpp"

namespace paceline::roles {

using namespace protocol;

namespace {

/// A verifier that has sent a message and got no drafts is sent an empty Drafts after this long.
constexpr double kSignSeconds = 0.5;

/// Exponents of feature values are below this. No model computes larger values, and they could
/// overflow fp32 in a head's first product.
constexpr int kMostExponent = 96;

/// The upper 16 bits of a value hold its sign and exponent, in either dtype.
bool in_range(std::span<const std::byte> values, DType type) {
  constexpr int kBias = 127;
  const std::size_t size = size_of(type);
  for (std::size_t at = size - 2; at + 2 <= values.size(); at += size) {
    std::uint16_t upper = 0;
    std::memcpy(&upper, values.data() + at, sizeof upper);
    if (((upper >> 7) & 0xFF) >= kBias + kMostExponent) return false;
  }
  return true;
}

}  // namespace

DrafterRank::DrafterRank(Mailbox& mailbox, const Clock& clock,
                         std::vector<std::unique_ptr<draft::Drafter>> drafters,
                         TelemetrySink& telemetry, const DrafterOptions& options)
    : mailbox_(mailbox),
      clock_(clock),
      drafters_(std::move(drafters)),
      telemetry_(telemetry),
      options_(options),
      tallies_(drafters_.size()) {
  for (const auto& drafter : drafters_) {
    if (draft::FeatureReader* reader = drafter->capabilities().features) readers_.push_back(reader);
  }
  for (const draft::FeatureReader* reader : readers_)
    feature_bytes_ = std::max(feature_bytes_, reader->feature_bytes());
}

Turn DrafterRank::turn() {
  receive();
  if (over_) return {true};
  Turn turn{draft()};
  send_due();
  for (auto& [verifier, c] : verifiers_) {
    if (!c.waits) continue;
    if (clock_.now() >= c.said + kSignSeconds) {
      say(verifier, {});
      mailbox_.flush();
    } else {
      turn.wake = std::min(turn.wake, c.said + kSignSeconds);
    }
  }
  return turn;
}

void DrafterRank::say(int verifier, const Drafts& drafts) {
  mailbox_.send({verifier, Address::Port::role}, encode(drafts));
  verifiers_[verifier] = {clock_.now(), false};
}

void DrafterRank::receive() {
  while (!over_) {
    const std::optional<Envelope> envelope = mailbox_.poll();
    if (!envelope) break;
    take(*envelope);
  }
}

/// Applies or drops a message: drafters may still write to a rank that was a verifier before.
void DrafterRank::take(const Envelope& envelope) {
  const bool trusted = envelope.from == Address::coordinator();
  std::optional<Message> message =
      trusted ? decode(envelope.bytes) : decode_if_message(envelope.bytes);
  if (!message) return;
  const int from = envelope.from.rank;
  const auto for_this_place = [this](Address, const auto& told) {
    return told.since == options_.place.since;
  };
  const Receipt receipt = protocol::receive(
      envelope.from, *message,
      on<DraftCommits>(for_this_place,
                       [&](Address, DraftCommits& commits) {
                         apply(from, commits);
                         verifiers_[from].waits = true;
                       }),
      on<DraftOpen>(for_this_place,
                    [&](Address, DraftOpen& opened) {
                      open(from, opened);
                      verifiers_[from].waits = true;
                    }),
      on<DraftFeatures>(for_this_place,
                        [&](Address, DraftFeatures& features) {
                          observe(from, features);
                          verifiers_[from].waits = true;
                        }),
      on<Place>(the_coordinator,
                [&](Address, Place& place) {
                  const policy::DrafterPlace* own = place.placement.drafter(options_.place.rank);
                  over_ = own == nullptr || *own != options_.place;
                  if (over_) next_place_ = std::move(place.placement);
                }),
      on<Finish>(the_coordinator, [&](Address, Finish&) { over_ = true; }));
  if (receipt == Receipt::unknown && trusted && !may_come_late(*message))
    throw std::logic_error("a drafter got a message meant for another role");
}

void DrafterRank::open(int from, const DraftOpen& open) {
  std::vector<TokenId>& prompt = prompts_[open.id.prompt];
  if (!open.prompt.empty()) prompt = open.prompt;
  if (prompt.empty()) return;  // the request's prompt was never sent
  if (const auto at = requests_.find(open.id); at != requests_.end()) {
    if (at->second.version > open.version) return;  // the request has moved
    for (const auto& drafter : drafters_) drafter->leave(open.id, clock_.now());
    drop(open.id);
  }
  OpenRequest& r = requests_[open.id];
  r.verifier = from;
  r.version = open.version;
  r.window = std::clamp(open.window, 1, options_.window);
  r.response = static_cast<std::int32_t>(open.response.size());
  for (const auto& drafter : drafters_)
    drafter->start({open.id, prompt, open.response, open.noise, open.version, true, open.sampling},
                   clock_.now());
}

/// Forgets a request. Its drafts count as wasted.
void DrafterRank::drop(RequestId id) {
  const auto at = requests_.find(id);
  const auto wasted = static_cast<std::uint32_t>(at->second.ahead.size());
  summary_.wasted += wasted;
  summary_.most_wasted = std::max(summary_.most_wasted, wasted);
  requests_.erase(at);
}

/// Drafted tokens that were committed are no longer ahead. The first one that differs from the
/// committed text is refuted, with all after it.
void DrafterRank::judge(OpenRequest& r, std::span<const TokenId> tokens) {
  const auto agreed = static_cast<std::size_t>(
      std::mismatch(r.ahead.begin(), r.ahead.end(), tokens.begin(), tokens.end()).first -
      r.ahead.begin());
  const bool goes_on = agreed == tokens.size();
  for (std::size_t t = 0; t < r.ahead.size() && t <= agreed && t < tokens.size(); ++t) {
    DraftTally& tally = tallies_[r.by[t]];
    ++tally.tried;
    tally.accepted += t < agreed ? 1 : 0;
  }
  summary_.accepted += agreed;
  const std::size_t gone = goes_on ? agreed : r.ahead.size();
  if (gone > agreed) {
    const auto wasted = static_cast<std::uint32_t>(gone - agreed);
    summary_.wasted += wasted;
    summary_.most_wasted = std::max(summary_.most_wasted, wasted);
  }
  const auto end = static_cast<std::ptrdiff_t>(gone);
  r.ahead.erase(r.ahead.begin(), r.ahead.begin() + end);
  r.scores.erase(r.scores.begin(), r.scores.begin() + end);
  r.by.erase(r.by.begin(), r.by.begin() + end);
  r.sent -= std::min(r.sent, gone);
}

void DrafterRank::apply(int from, const DraftCommits& commits) {
  const double now = clock_.now();
  for (const DraftCommit& commit : commits.commits) {
    const auto at = requests_.find(commit.id);
    if (at == requests_.end() || at->second.verifier != from) continue;  // the request has moved
    OpenRequest& r = at->second;
    if (commit.first < 0 || commit.count < 0 ||
        std::int64_t{commit.first} + commit.count > std::ssize(commits.tokens)) {
      ++summary_.invalid;
      continue;
    }
    const auto tokens = std::span(commits.tokens).subspan(commit.first, commit.count);
    for (const auto& drafter : drafters_) {
      if (!tokens.empty()) drafter->commit(commit.id, tokens, now);
      if (commit.end == DraftEnd::finished) drafter->finish(commit.id, now);
      if (commit.end == DraftEnd::left) drafter->leave(commit.id, now);
    }
    r.response += commit.count;
    r.exhausted = false;
    judge(r, tokens);
    if (commit.end != DraftEnd::goes_on) drop(commit.id);
  }
}

bool DrafterRank::usable(const DraftFeatures& message) const {
  if (feature_bytes_ == 0 || !in_range(message.features, options_.features)) return false;
  std::uint64_t rows = 0;
  for (const DraftRows& stretch : message.rows) {
    if (stretch.first < 0 || stretch.count < 1) return false;
    rows += static_cast<std::uint64_t>(stretch.count);
  }
  return message.features.size() % feature_bytes_ == 0 &&
         message.features.size() / feature_bytes_ == rows;
}

void DrafterRank::observe(int from, const DraftFeatures& message) {
  if (!usable(message)) {
    ++summary_.invalid;
    return;
  }
  std::span<const std::byte> rest = message.features;
  for (const DraftRows& stretch : message.rows) {
    const std::size_t bytes = static_cast<std::size_t>(stretch.count) * feature_bytes_;
    const std::span<const std::byte> features = rest.first(bytes);
    rest = rest.subspan(bytes);
    const auto at = requests_.find(stretch.id);
    if (at == requests_.end() || at->second.verifier != from) continue;  // the request has moved
    // The target computes no position past the committed text.
    const auto text =
        static_cast<std::int64_t>(prompts_.at(stretch.id.prompt).size()) + at->second.response;
    if (std::int64_t{stretch.first} + stretch.count > text) {
      ++summary_.invalid;
      continue;
    }
    for (draft::FeatureReader* reader : readers_)
      reader->observe(stretch.id, stretch.first, features);
    at->second.exhausted = false;
  }
}

/// Drafts for as many requests as fit a call, beginning where the last call ended. Returns whether
/// drafts were asked for; even where none was found, other requests may be next.
bool DrafterRank::draft() {
  asked_.clear();
  bool held_up = false;
  auto at = requests_.lower_bound(next_);
  for (std::size_t i = 0; i < requests_.size(); ++i, ++at) {
    if (at == requests_.end()) at = requests_.begin();
    if (static_cast<int>(asked_.size()) == options_.max_batch) break;
    const bool limited = at_limit(at->second);
    held_up = held_up || limited;
    if (!limited && !at->second.exhausted) asked_.push_back(at->first);
  }
  if (asked_.empty()) {
    if (!held_up) held_up_since_ = -1;
    if (held_up && held_up_since_ < 0) held_up_since_ = clock_.now();
    return false;
  }
  next_ = at == requests_.end() ? RequestId{} : at->first;
  StepRecord record;
  record.start = clock_.now();
  record.role = static_cast<std::uint32_t>(Role::drafter);
  record.requests = static_cast<std::uint32_t>(asked_.size());
  if (held_up_since_ >= 0) record.waited = record.start - std::exchange(held_up_since_, -1);
  const std::uint64_t before = summary_.drafted;
  for (std::size_t d = 0; d < drafters_.size(); ++d) {
    if (!ask(static_cast<std::int32_t>(d))) break;
  }
  for (const RequestId id : asked_) requests_.at(id).exhausted = true;
  record.duration = clock_.now() - record.start;
  record.draft_duration = record.duration;
  record.drafted = static_cast<std::uint32_t>(summary_.drafted - before);
  record.queued = static_cast<std::uint32_t>(mailbox_.traffic().queued);
  telemetry_.step(record);
  ++summary_.steps;
  summary_.busy_seconds += record.duration;
  summary_.waited_seconds += record.waited;
  return true;
}

/// Asks a drafter for the requests still without a draft; false where there are none.
bool DrafterRank::ask(std::int32_t drafter) {
  if (asked_.empty()) return false;
  const auto width = static_cast<std::size_t>(std::max(options_.window, options_.longest));
  tokens_.resize(asked_.size() * width);
  parents_.resize(tokens_.size());
  path_scores_.resize(tokens_.size());
  slots_.clear();
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    const OpenRequest& r = requests_.at(asked_[i]);
    // A draft reaches to the end of the next piece, or to the limit of tokens ahead.
    const int unsent = static_cast<int>(r.ahead.size() - r.sent);
    const int most =
        std::min(piece(r) - unsent, most_ahead(window(r)) - static_cast<int>(r.ahead.size()));
    slots_.push_back({.id = asked_[i],
                      .limits = {most, most, 1},
                      .output = {std::span(tokens_).subspan(i * width, width),
                                 std::span(parents_).subspan(i * width, width),
                                 std::span(path_scores_).subspan(i * width, width)},
                      .assumed = r.ahead});
  }
  drafters_[drafter]->propose(slots_, clock_.now(), nullptr);
  asked_.clear();
  for (const draft::DraftSlot& slot : slots_) {
    if (slot.count == 0) {
      asked_.push_back(slot.id);
      continue;
    }
    OpenRequest& r = requests_.at(slot.id);
    float before = 1;
    for (int t = 0; t < slot.count; ++t) {
      r.ahead.push_back(slot.output.tokens[t]);
      r.scores.push_back(before > 0 ? slot.output.scores[t] / before : 0);
      before = slot.output.scores[t];
      r.by.push_back(drafter);
    }
    summary_.drafted += slot.count;
  }
  return true;
}

/// Sends complete pieces, and shorter ones that no drafter can extend. A request whose verifier has
/// no drafted token left is sent any piece: the verifier would decode plainly otherwise.
void DrafterRank::send_due() {
  std::map<int, Drafts> drafts;  // by verifier
  for (auto& [id, r] : requests_) {
    const auto unsent = static_cast<int>(r.ahead.size() - r.sent);
    if (unsent == 0 || (unsent < piece(r) && r.sent > 0 && !r.exhausted)) continue;
    if (mailbox_.full({r.verifier, Address::Port::role})) continue;
    Drafts& to = drafts[r.verifier];
    to.pieces.push_back({id, r.response + static_cast<std::int32_t>(r.sent), r.response,
                         static_cast<std::int32_t>(to.tokens.size()), unsent});
    float path = 1;
    for (std::size_t t = r.sent; t < r.ahead.size(); ++t) {
      to.tokens.push_back(r.ahead[t]);
      to.scores.push_back(path *= r.scores[t]);
    }
    r.sent = r.ahead.size();
  }
  for (const auto& [verifier, message] : drafts) say(verifier, message);
  if (!drafts.empty()) mailbox_.flush();
}

}  // namespace paceline::roles
