#include "runtime/roles/drafter_rank.hpp"

#include <cstring>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "runtime/core/philox.hpp"
#include "runtime/core/role.hpp"
#include "runtime/protocol/message_table.hpp"

namespace paceline::roles {

using namespace protocol;

namespace {

/// A verifier awaiting an answer gets an empty Drafts if nothing was sent to it for kSignSeconds.
constexpr double kSignSeconds = 0.5;

/// Binary exponents of valid features are below this. Larger features could overflow fp32 in a
/// head's first product. No model computes such features.
constexpr int kMostExponent = 96;

/// An observation's weight in the share of right second choices falls to 1/e after kSecondMemory
/// further observations. kSecondPrior: weight of the prior, in observations.
constexpr double kSecondMemory = 1000;
constexpr double kSecondPrior = 20;

/// Weight of the newest interval in the average time between two DraftCommits.
constexpr double kNewest = 0.05;

/// Whether all exponents are in range. In bf16 and fp32 a value's upper 16 bits hold its exponent.
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

void append(std::vector<TokenId>& to, std::span<const DraftedToken> drafted) {
  for (const DraftedToken& next : drafted) to.push_back(next.token);
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
      tallies_(drafters_.size()),
      acceptance_(std::vector<double>(drafters_.size(), policy::kUnknownAcceptance)) {
  for (std::size_t d = 0; d < drafters_.size(); ++d) {
    const draft::Capabilities can = drafters_[d]->capabilities();
    if (can.features != nullptr) readers_.push_back(can.features);
    if (can.branches && branching_ < 0) branching_ = static_cast<std::int32_t>(d);
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

/// Applies or drops a message. Late Drafts for a past role as verifier, for example, are dropped.
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
                         note_answer();
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
    throw std::logic_error("a drafter got a message that it does not take");
}

void DrafterRank::open(int from, const DraftOpen& open) {
  std::vector<TokenId>& prompt = prompts_[open.id.prompt];
  if (!open.prompt.empty()) prompt = open.prompt;
  if (prompt.empty()) return;  // the request's prompt was never sent
  if (const auto at = requests_.find(open.id); at != requests_.end()) {
    if (at->second.version > open.version) return;  // `open` is from an earlier holder
    if (goes_on(from, open, at->second)) return;
    for (const auto& drafter : drafters_) drafter->leave(open.id, clock_.now());
    drop(open.id);
  }
  OpenRequest& r = requests_[open.id];
  r.verifier = from;
  r.version = open.version;
  r.response = static_cast<std::int32_t>(open.response.size());
  for (const auto& drafter : drafters_)
    drafter->start({open.id, prompt, open.response, open.noise, open.version, true, open.sampling},
                   clock_.now());
}

/// Goes on with a request that the verifier opens again because this rank's mailbox was full. The
/// drafters compute only the text that they missed. To compute the whole texts of all requests
/// would take so long that the mailbox would fill up again. Returns false, and changes nothing, if
/// the request must be opened anew: it has moved, or a drafter reads features, and missed some.
bool DrafterRank::goes_on(int from, const DraftOpen& open, OpenRequest& r) {
  const auto known = static_cast<std::size_t>(r.response);
  if (r.verifier != from || r.version != open.version || open.response.size() < known ||
      !readers_.empty())
    return false;
  waste(r.ahead.chain.size(), r.ahead.branched());
  r.ahead = {};
  r.response = static_cast<std::int32_t>(open.response.size());
  const std::span<const TokenId> missed = std::span(open.response).subspan(known);
  for (const auto& drafter : drafters_) {
    if (!missed.empty()) drafter->commit(open.id, missed, clock_.now());
  }
  return true;
}

void DrafterRank::drop(RequestId id) {
  const auto at = requests_.find(id);
  waste(at->second.ahead.chain.size(), at->second.ahead.branched());
  requests_.erase(at);
}

/// Counts the tokens that one event wasted: `tokens` of a chain, `of_branches` of its branches.
void DrafterRank::waste(std::size_t tokens, std::size_t of_branches) {
  summary_.wasted += tokens + of_branches;
  summary_.most_wasted = std::max(summary_.most_wasted, static_cast<std::uint32_t>(tokens));
}

/// Counts a chain's first `agreed` tokens as right, and the next as wrong if it was refuted.
void DrafterRank::tally(const DraftedChain& chain, std::size_t agreed,
                        std::span<const TokenId> tokens) {
  summary_.accepted += agreed;
  for (std::size_t t = 0; t < chain.size() && t <= agreed && t < tokens.size(); ++t) {
    const bool right = t < agreed;
    const DraftedToken& drafted = chain.tokens[t];
    DraftTally& tally = tallies_[drafted.by];
    ++tally.tried;
    tally.accepted += right ? 1 : 0;
    acceptance_.record(drafted.by, drafted.score, right);
    if (!right && drafted.runner_up >= 0)
      second_choices_.record(drafted.runner_up == tokens[t] ? 1 : 0, 1, kSecondMemory);
  }
}

/// Compares drafted tokens with `tokens`, the response's last tokens. Tokens of the chain that were
/// committed are removed, with the branches that leave the chain at one of them. At the first
/// difference the rest of the chain and all branches are dropped. But if a branch leaves the chain
/// at this point with the committed token, this branch becomes the chain, and is compared with the
/// tokens that follow.
void DrafterRank::judge(OpenRequest& r, std::span<const TokenId> tokens) {
  for (;;) {
    DraftedChain& chain = r.ahead.chain;
    const auto agreed = static_cast<std::size_t>(
        std::ranges::mismatch(chain.tokens, tokens, {}, &DraftedToken::token).in1 -
        chain.tokens.begin());
    tally(chain, agreed, tokens);
    const std::int32_t said = r.response - static_cast<std::int32_t>(tokens.size() - agreed);
    if (agreed == tokens.size()) {
      chain.drop_front(agreed);
      const auto left = r.ahead.first_branch(r.response);
      for (auto at = r.ahead.branches.begin(); at != left; ++at) waste(0, at->chain.size());
      r.ahead.branches.erase(r.ahead.branches.begin(), left);
      return;
    }
    DraftedBranch* branch = r.ahead.branch(said);
    const bool foreseen = branch != nullptr && branch->instead == tokens[agreed];
    const std::size_t taken = foreseen ? branch->chain.size() : 0;
    waste(chain.size() - agreed, r.ahead.branched() - taken);
    if (foreseen) std::swap(chain, branch->chain);
    r.ahead.branches.clear();
    if (!foreseen) return chain.clear();
    tokens = tokens.subspan(agreed + 1);
  }
}

void DrafterRank::note_answer() {
  const double now = clock_.now();
  if (answered_ >= 0) {
    const double since = now - answered_;
    between_answers_ += (between_answers_ > 0 ? kNewest : 1) * (since - between_answers_);
  }
  answered_ = now;
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
    r.ahead.chain.exhausted = false;
    for (DraftedBranch& branch : r.ahead.branches) branch.chain.exhausted = false;
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
    at->second.ahead.chain.exhausted = false;
  }
}

/// Adds to outcomes_ the request's branches, begun or not, that are likely enough to get another
/// token. Returns the probability that the target samples the whole chain.
double DrafterRank::list_outcomes(RequestId id, const OpenRequest& r) {
  const DraftedChain& chain = r.ahead.chain;
  const double second = second_choices_.estimate(policy::kSecondChoice, kSecondPrior);
  double chance = 1;
  auto branch = r.ahead.branches.begin();
  for (std::size_t t = 0; t < chain.size(); ++t) {
    const DraftedToken& drafted = chain.tokens[t];
    const double right = acceptance_.estimate(drafted.by, drafted.score);
    const double here = chance * (1 - right) * second;
    chance *= right;
    if (drafted.by != branching_ || drafted.runner_up < 0) continue;
    Outcome outcome{id, r.response + static_cast<std::int32_t>(t), here};
    std::size_t ahead = t + 1;
    while (branch != r.ahead.branches.end() && branch->leaves < outcome.leaves) ++branch;
    if (branch != r.ahead.branches.end() && branch->leaves == outcome.leaves) {
      if (branch->chain.exhausted) continue;
      ahead += branch->chain.size();
      for (const DraftedToken& after : branch->chain.tokens)
        outcome.chance *= acceptance_.estimate(after.by, after.score);
    }
    if (outcome.chance >= policy::kLeastChance && static_cast<int>(ahead) < most_ahead())
      outcomes_.push_back(outcome);
  }
  return chance;
}

/// Chooses the branches that the current draft() extends, the likeliest first, in addition to the
/// chains of the requests in `asked_`.
void DrafterRank::choose_outcomes() {
  outcomes_.clear();
  if (branching_ < 0 || !eager() || (options_.calls.empty() && options_.shuffle == 0)) return;
  if (std::ssize(asked_) >= options_.max_batch) return;
  policy::SureDrafts sure{.rows = static_cast<double>(asked_.size())};
  if (between_answers_ > 0) sure.answers = 1 / between_answers_;
  for (const auto& [id, r] : requests_) {
    const double chance = list_outcomes(id, r);
    if (may_ask(r)) sure.tokens += chance;
    sure.context += static_cast<double>(prompts_.at(id.prompt).size()) + r.response;
  }
  sure.context /= static_cast<double>(std::max<std::size_t>(1, requests_.size()));
  const std::size_t room = static_cast<std::size_t>(options_.max_batch) - asked_.size();
  const auto likelier = [](const Outcome& a, const Outcome& b) {
    if (a.chance != b.chance) return a.chance > b.chance;
    return std::tie(a.id, a.leaves) < std::tie(b.id, b.leaves);
  };
  if (outcomes_.size() > room) {
    const auto end = outcomes_.begin() + static_cast<std::ptrdiff_t>(room);
    std::nth_element(outcomes_.begin(), end, outcomes_.end(), likelier);
    outcomes_.erase(end, outcomes_.end());
  }
  std::sort(outcomes_.begin(), outcomes_.end(), likelier);
  std::size_t count = 0;
  if (options_.shuffle != 0) {
    const auto seed = static_cast<std::uint32_t>(options_.shuffle);
    count = philox4x32({drawn_++, 0, 0, 0}, {seed, 0})[0] % (outcomes_.size() + 1);
  } else {
    std::vector<double> chances;
    for (const Outcome& outcome : outcomes_) chances.push_back(outcome.chance);
    count = policy::outcomes_that_pay(options_.calls, sure, chances);
  }
  outcomes_.resize(count);
}

/// Number of requests whose chain or branches the current draft() is to extend.
std::size_t DrafterRank::requests_of_call() const {
  if (outcomes_.empty()) return asked_.size();
  std::set<RequestId> requests;
  for (const Asked& asked : asked_) requests.insert(asked.id);
  for (const Outcome& outcome : outcomes_) requests.insert(outcome.id);
  return requests.size();
}

/// Drafts for the requests that fit in one call of a drafter, beginning where the last draft()
/// ended. Returns true if drafters were asked, even if they found nothing.
bool DrafterRank::draft() {
  asked_.clear();
  bool held_up = false;
  auto at = requests_.lower_bound(next_);
  for (std::size_t i = 0; i < requests_.size(); ++i, ++at) {
    if (at == requests_.end()) at = requests_.begin();
    if (static_cast<int>(asked_.size()) == options_.max_batch) break;
    held_up = held_up || at_limit(at->second);
    if (may_ask(at->second)) asked_.push_back({at->first, &at->second});
  }
  choose_outcomes();
  if (asked_.empty() && outcomes_.empty()) {
    if (!held_up) held_up_since_ = -1;
    if (held_up && held_up_since_ < 0) held_up_since_ = clock_.now();
    return false;
  }
  next_ = at == requests_.end() ? RequestId{} : at->first;
  StepRecord record;
  record.start = clock_.now();
  record.role = static_cast<std::uint32_t>(Role::drafter);
  const bool sure = !asked_.empty();
  record.requests = static_cast<std::uint32_t>(requests_of_call());
  if (held_up_since_ >= 0) record.waited = record.start - std::exchange(held_up_since_, -1);
  const std::uint64_t before = summary_.drafted;
  for (std::size_t d = 0; d < drafters_.size(); ++d) {
    ask(static_cast<std::int32_t>(d));
  }
  for (const Asked& asked : asked_) asked.request->ahead.chain.exhausted = true;
  record.duration = clock_.now() - record.start;
  record.draft_duration = record.duration;
  record.drafted = static_cast<std::uint32_t>(summary_.drafted - before);
  record.queued = static_cast<std::uint32_t>(mailbox_.traffic().queued);
  telemetry_.step(record);
  ++summary_.steps;
  summary_.busy_seconds += record.duration;
  if (!sure) summary_.outcome_seconds += record.duration;
  summary_.waited_seconds += record.waited;
  return true;
}

/// Asks a drafter to draft for the requests in `asked_`, and removes requests that got a draft.
/// Drafter number `branching_` also drafts branches.
void DrafterRank::ask(std::int32_t drafter) {
  const std::size_t branches = drafter == branching_ ? outcomes_.size() : 0;
  if (asked_.empty() && branches == 0) return;
  const auto width = static_cast<std::size_t>(options_.window.most());
  tokens_.resize((asked_.size() + branches) * width);
  parents_.resize(tokens_.size());
  path_scores_.resize(tokens_.size());
  runners_up_.assign(tokens_.size(), -1);
  assumed_.resize(std::max(assumed_.size(), asked_.size() + branches));
  slots_.clear();
  for (const Asked& asked : asked_) {
    // Asks for the rest of the next piece, or less if the limit on tokens ahead comes first.
    const DraftedChain& chain = asked.request->ahead.chain;
    std::vector<TokenId>& assumed = assumed_[slots_.size()];
    assumed.clear();
    append(assumed, chain.tokens);
    add_slot(asked.id, assumed,
             std::min(piece() - chain.unsent(), most_ahead() - static_cast<int>(chain.size())), 0);
  }
  for (std::size_t i = 0; i < branches; ++i) {
    const Outcome& outcome = outcomes_[i];
    OpenRequest& r = requests_.at(outcome.id);
    const auto at = static_cast<std::size_t>(outcome.leaves - r.response);
    const std::span<const DraftedToken> chain = r.ahead.chain.tokens;
    const DraftedBranch& branch = r.ahead.branch_at(outcome.leaves, chain[at].runner_up);
    std::vector<TokenId>& assumed = assumed_[slots_.size()];
    assumed.clear();
    append(assumed, chain.first(at));
    assumed.push_back(branch.instead);
    append(assumed, branch.chain.tokens);
    add_slot(outcome.id, assumed, 1, outcome.leaves + 1);
  }
  drafters_[drafter]->propose(slots_, clock_.now(), nullptr);
  for (std::size_t i = 0; i < branches; ++i) {
    const draft::DraftSlot& slot = slots_[asked_.size() + i];
    DraftedChain& chain = requests_.at(slot.id).ahead.branch(outcomes_[i].leaves)->chain;
    chain.exhausted = slot.count == 0;
    take_draft(slot, drafter, chain);
  }
  std::size_t without = 0;
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    if (slots_[i].count == 0) {
      asked_[without++] = asked_[i];
    } else {
      take_draft(slots_[i], drafter, asked_[i].request->ahead.chain);
    }
  }
  asked_.resize(without);
}

void DrafterRank::add_slot(RequestId id, std::span<const TokenId> assumed, int most,
                           std::int32_t branch) {
  const auto width = static_cast<std::size_t>(options_.window.most());
  const std::size_t at = slots_.size() * width;
  slots_.push_back(
      {.id = id,
       .limits = {most, most, 1},
       .output = {std::span(tokens_).subspan(at, width), std::span(parents_).subspan(at, width),
                  std::span(path_scores_).subspan(at, width)},
       .assumed = assumed,
       .branch = branch,
       .runners_up = std::span(runners_up_).subspan(at, width)});
}

void DrafterRank::take_draft(const draft::DraftSlot& slot, std::int32_t drafter,
                             DraftedChain& chain) {
  float before = 1;
  for (int t = 0; t < slot.count; ++t) {
    const float path = slot.output.scores[t];
    chain.tokens.push_back({.token = slot.output.tokens[t],
                            .score = before > 0 ? path / before : 0,
                            .by = drafter,
                            .runner_up = slot.runners_up[t]});
    before = path;
  }
  summary_.drafted += static_cast<std::uint64_t>(slot.count);
}

/// Sends new drafted tokens to verifiers whose mailboxes are not full: all tokens of branches, and
/// tokens of a chain that complete a piece or that no drafter can extend. If the verifier has no
/// token of the chain, a piece of any length is sent, so that its next step has a draft.
void DrafterRank::send_due() {
  std::map<int, Drafts> drafts;  // by verifier
  const auto send = [&](const OpenRequest& r, DraftedChain& chain, DraftPiece piece) {
    Drafts& to = drafts[r.verifier];
    piece.base += static_cast<std::int32_t>(chain.sent);
    piece.known = r.response;
    piece.first = static_cast<std::int32_t>(to.tokens.size());
    piece.count = chain.unsent();
    to.pieces.push_back(piece);
    float path = 1;
    for (std::size_t t = chain.sent; t < chain.size(); ++t) {
      to.tokens.push_back(chain.tokens[t].token);
      to.scores.push_back(path *= chain.tokens[t].score);
    }
    chain.sent = chain.size();
  };
  for (auto& [id, r] : requests_) {
    DraftedChain& chain = r.ahead.chain;
    if (chain.unsent() == 0 && r.ahead.branches.empty()) continue;
    if (mailbox_.full({r.verifier, Address::Port::role})) continue;
    if (chain.unsent() > 0 && (chain.unsent() >= piece() || chain.sent == 0 || chain.exhausted))
      send(r, chain, {.id = id, .base = r.response});
    for (auto& [leaves, instead, continued] : r.ahead.branches) {
      if (continued.unsent() == 0) continue;
      send(r, continued, {.id = id, .base = leaves + 1, .leaves = leaves, .instead = instead});
    }
  }
  for (const auto& [verifier, message] : drafts) say(verifier, message);
  if (!drafts.empty()) mailbox_.flush();
}

}  // namespace paceline::roles
