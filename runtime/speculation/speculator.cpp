#include "runtime/speculation/speculator.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::speculation {
namespace {

/// Number of steps with drafts from one trial to the next.
constexpr std::uint64_t kTrialInterval = 32;
/// A drafter whose state lags (LaggingState) is tried only for requests whose lag exceeds the
/// smallest lag by at most this number of tokens. In a roster of two drafters, the requests of the
/// last two trials stay within this limit if responses grow by at most 8 tokens a step.
constexpr int kTrialLag = 256;

std::vector<double> priors(const DrafterRoster& roster) {
  std::vector<double> acceptance;
  for (const RosterEntry& entry : roster) acceptance.push_back(entry.acceptance);
  return acceptance;
}

double mean_context(std::span<const engine::Decoding> decoding) {
  double sum = 0;
  for (const engine::Decoding& d : decoding) sum += d.context;
  return decoding.empty() ? 0 : sum / static_cast<double>(decoding.size());
}

}  // namespace

Speculator::Speculator(DrafterRoster roster, std::unique_ptr<policy::DraftLengthPolicy> policy,
                       const draft::DraftLimits& limits, const Clock& clock,
                       SpeculatorOptions options)
    : roster_(std::move(roster)),
      policy_(std::move(policy)),
      limits_(limits),
      clock_(clock),
      model_(priors(roster_)),
      tallies_(roster_.size()),
      step_tokens_(options.step_tokens) {
  if (roster_.empty()) throw std::invalid_argument("speculation without drafters");
  for (const RosterEntry& entry : roster_) {
    const draft::Capabilities can = entry.drafter->capabilities();
    if (can.features != nullptr) readers_.push_back(can.features);
    lags_ = lags_ || can.state != nullptr;
    listens_ = listens_ || can.ahead;
  }
}

void Speculator::Draft::resize(int count) {
  tokens.resize(count);
  parents.resize(count);
  scores.resize(count);
  conditional.resize(count);
  values.resize(count);
}

void Speculator::start(const Admission& request, OptionalIndex method) {
  const double now = clock_.now();
  // The drafters must hear of the request's older commits first.
  if (log_.has(request.trajectory.id)) log_.tell(roster_, now);
  for (std::size_t k = 0; k < roster_.size(); ++k) {
    roster_[k].drafter->start(
        {request.trajectory.id, request.prompt, request.trajectory.tokens, request.noise,
         request.version, !method || method == static_cast<int>(k), request.sampling},
        now);
  }
  requests_.try_emplace(request.trajectory.id,
                        SpeculatedRequest{Acceptance(roster_.size()), method, {}});
}

double Speculator::next_accepted(const SpeculatedRequest& request, std::size_t drafter) const {
  return request.acceptance[drafter].estimate(model_.mean(static_cast<int>(drafter)));
}

policy::DraftHope Speculator::hope(const SpeculatedRequest& request, std::size_t drafter) const {
  return request.acceptance[drafter].outcomes.hope(model_.hope(static_cast<int>(drafter)));
}

bool Speculator::serves(std::size_t drafter, const SpeculatedRequest& request) const {
  return roster_[drafter].drafter->present() &&
         (!request.method || request.method == static_cast<int>(drafter));
}

// Fills in the spans of the policy's query. A request's acceptance is the highest among its
// drafters, without those that draft for it only on trial.
void Speculator::describe(std::span<const engine::Decoding> decoding,
                          std::span<const std::span<const TokenId>> foretold) {
  foretold_.clear();
  acceptance_.clear();
  longest_draft_.clear();
  lag_.clear();
  response_.clear();
  most_drafted_.clear();
  decoded_.clear();
  most_tokens_ = limits_.max_tokens;
  if (step_tokens_ > 0 && !decoding.empty())
    most_tokens_ = std::min(most_tokens_, step_tokens_ / static_cast<int>(decoding.size()));
  for (const engine::Decoding& d : decoding) {
    const SpeculatedRequest& request = requests_.at(d.id);
    double best = 0;
    int lag = 0;
    bool served = false;  // whether some drafter can draft for the request now
    for (std::size_t k = 0; k < roster_.size(); ++k) {
      if (!serves(k, request)) continue;
      served = true;
      if (roster_[k].reserved && !request.method) continue;
      best = std::max(best, next_accepted(request, k));
      const draft::LaggingState* state = roster_[k].drafter->capabilities().state;
      lag += state != nullptr ? state->lag(d.id) : 0;
    }
    acceptance_.push_back(best);
    const int longest = served ? limits_.max_length : 0;
    const int most = std::min<int>(d.most_drafted, most_tokens_);
    most_drafted_.push_back(most);
    const std::span<const TokenId> next =
        foretold.empty() ? std::span<const TokenId>() : foretold[foretold_.size()];
    foretold_.push_back(next.first(std::min<std::size_t>(next.size(), most)));
    longest_draft_.push_back(std::min(most - static_cast<int>(foretold_.back().size()), longest));
    if (lags_) lag_.push_back(lag);
    response_.push_back(d.response);
    decoded_.push_back(&request);
  }
  describe_hopes();
  query_.acceptance = acceptance_;
  query_.hopes = hopes_;
  query_.longest_draft = longest_draft_;
  query_.lag = lag_;
  query_.response = response_;
}

void Speculator::describe_hopes() {
  hopes_.clear();
  for (std::size_t k = 0; k < roster_.size(); ++k) {
    for (const SpeculatedRequest* request : decoded_) {
      const bool drafts = serves(k, *request) && (!roster_[k].reserved || request->method);
      hopes_.push_back(drafts ? hope(*request, k) : policy::DraftHope{});
    }
  }
}

void Speculator::leave(RequestId id) {
  const double now = clock_.now();
  log_.tell(roster_, now);
  for (const RosterEntry& entry : roster_) {
    entry.drafter->leave(id, now);
    entry.drafter->told();  // sends messages now: perhaps no step follows
  }
  requests_.erase(id);
}

/// Skips requests that have left the Speculator but not the batch.
void Speculator::observe(std::span<const engine::Computed> computed, engine::StepRunner& runner) {
  for (const engine::Computed& c : computed) {
    if (!requests_.contains(c.id)) continue;
    features_.resize(c.rows.size() * runner.feature_bytes());
    runner.read_features(c.rows, features_);
    for (draft::FeatureReader* reader : readers_)
      reader->observe(c.id, c.first_position, features_);
  }
}

std::span<const engine::DraftTree> Speculator::draft(
    std::span<const engine::Decoding> decoding, int prefill_rows,
    std::span<const std::span<const TokenId>> foretold) {
  drafted_ = false;
  asked_models_ = false;
  draft_seconds_ = 0;
  step_drafted_ = 0;
  step_calls_ = 0;
  const double now = clock_.now();
  query_.requests = static_cast<int>(decoding.size());
  query_.prefill_rows = prefill_rows;
  query_.context = mean_context(decoding);
  const bool considers = policy_->considers(query_);
  const bool any_foretold =
      std::ranges::any_of(foretold, [](std::span<const TokenId> next) { return !next.empty(); });
  if (!considers && !any_foretold) return {};
  log_.tell(roster_, now);
  describe(decoding, foretold);
  lengths_.assign(decoding.size(), 0);
  if (considers) policy_->choose(query_, lengths_);
  drafted_ = std::ranges::any_of(lengths_, [](int length) { return length > 0; });
  if (!drafted_ && !any_foretold) return {};

  drafts_.resize(std::max(drafts_.size(), decoding.size()));
  beside_.assign(decoding.size(), 0);
  proposed_.resize(std::max(proposed_.size(), decoding.size()));
  proposals_.assign(decoding.size(), 0);
  expected_.clear();
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    drafts_[i].resize(std::max<std::size_t>(drafts_[i].size(), 1));
    begin(drafts_[i][0], 0, foretold_[i], 0);
    expected_.push_back(drafts_[i][0].expected_tokens);
  }
  choose_trial(decoding);
  for (std::size_t k = 0; k < roster_.size(); ++k) ask(static_cast<int>(k), decoding);
  select();
  ++draft_steps_;
  draft_seconds_ = clock_.now() - now;
  return trees_;
}

/// Begins a draft with the foretold tokens, and makes room for `tokens` tokens of the drafter.
void Speculator::begin(Draft& draft, int drafter, std::span<const TokenId> foretold,
                       int tokens) const {
  const auto known = static_cast<int>(foretold.size());
  draft.drafter = drafter;
  draft.foretold = known;
  draft.expected_tokens = known;
  draft.resize(known + tokens);
  for (int t = 0; t < known; ++t) {
    draft.tokens[t] = foretold[t];
    draft.parents[t] = t - 1;
    draft.scores[t] = 1;
    draft.conditional[t] = 1;
    draft.values[t] = 1;
  }
}

// All drafters of the roster, except the first, are tried in turn, each for the batch's requests in
// turn. A drafter whose state lags is tried only for requests with small lags, because computing
// many missed tokens would take as long as several steps.
void Speculator::choose_trial(std::span<const engine::Decoding> decoding) {
  trial_.reset();
  if (roster_.size() == 1 || draft_steps_ % kTrialInterval != 0) return;
  const std::uint64_t turn = draft_steps_ / kTrialInterval;
  const std::uint64_t later = roster_.size() - 1;
  const std::size_t drafter = 1 + turn % later;
  const std::uint64_t round = turn / later;
  trial_ = Trial{drafter, round % decoding.size()};
  const draft::LaggingState* state = roster_[drafter].drafter->capabilities().state;
  if (state == nullptr) return;
  std::vector<std::pair<int, std::size_t>> lags;  // lag and index in the batch of each request
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    if (lengths_[i] > 0 && serves(drafter, *decoded_[i]))
      lags.emplace_back(state->lag(decoding[i].id), i);
  }
  if (lags.empty()) return;
  const int most = std::ranges::min_element(lags)->first + kTrialLag;
  std::erase_if(lags, [most](const auto& lag) { return lag.first > most; });
  trial_->request = lags[round % lags.size()].second;
}

bool Speculator::on_trial(int drafter, std::size_t request) const {
  return trial_ && static_cast<std::size_t>(drafter) == trial_->drafter &&
         request == trial_->request;
}

void Speculator::ask(int drafter, std::span<const engine::Decoding> decoding) {
  const RosterEntry& entry = roster_[drafter];
  const bool ahead = entry.runs_ahead();
  slots_.clear();
  slot_request_.clear();
  other_.resize(std::max(other_.size(), decoding.size()));
  const bool wanted = policy_->asks(static_cast<std::size_t>(drafter));
  for (std::size_t i = 0; i < decoding.size(); ++i) {
    // A drafter that runs ahead has drafted already, so the policy's length does not limit it.
    const int length = lengths_[i] > 0 && ahead ? longest_draft_[i] : lengths_[i];
    if (length == 0 || !serves(drafter, *decoded_[i])) continue;
    const bool kept_back = entry.reserved && !decoded_[i]->method;
    const bool promises =
        drafter == 0 || ahead ||
        static_cast<double>(foretold_[i].size()) + hope(*decoded_[i], drafter).tokens(length) >
            expected_[i];
    if ((!promises || !wanted || kept_back) && !on_trial(drafter, i)) continue;
    Draft& draft = other_[slots_.size()];
    // Each token of a tree is a row of the step, and rows are limited (Decoding::most_drafted).
    const auto known = static_cast<int>(foretold_[i].size());
    const int paths = policy_->paths(query_, static_cast<int>(i), limits_.paths);
    const int tokens = std::min(length * paths, most_drafted_[i] - known);
    begin(draft, drafter, foretold_[i], tokens);
    draft.asked = length;
    slots_.push_back(
        {.id = decoding[i].id,
         .limits = {tokens, length, paths},
         .output = {std::span(draft.tokens).subspan(known), std::span(draft.parents).subspan(known),
                    std::span(draft.scores).subspan(known)},
         .assumed = foretold_[i]});
    slot_request_.push_back(static_cast<std::int32_t>(i));
  }
  if (slots_.empty()) return;
  asked_models_ = asked_models_ || entry.drafter->capabilities().memory != nullptr;
  entry.drafter->propose(slots_, clock_.now(), entry.levels.get());
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    Draft& other = other_[s];
    step_calls_ += static_cast<std::uint32_t>(slots_[s].calls);
    for (std::int32_t& parent : std::span(other.parents).subspan(other.foretold, slots_[s].count))
      parent += other.foretold;  // the drafter's indices do not count foretold tokens
    other.resize(other.foretold + slots_[s].count);
    calibrate(other);
    note_proposed(static_cast<std::size_t>(slot_request_[s]), other);
    take(drafter, static_cast<std::size_t>(slot_request_[s]), other);
  }
}

void Speculator::note_proposed(std::size_t request, const Draft& draft) {
  const std::size_t place = proposals_[request]++;
  proposed_[request].resize(std::max(proposed_[request].size(), place + 1));
  Draft& noted = proposed_[request][place];
  noted.drafter = draft.drafter;
  noted.foretold = draft.foretold;
  noted.asked = draft.asked;
  noted.tokens = draft.tokens;
  noted.parents = draft.parents;
}

/// Records how many levels of each proposed draft agree with the step's committed tokens. Drafts
/// that were not verified are judged too, so that an improvement of their drafters is noticed.
void Speculator::judge_proposed(const engine::Committed& committed) {
  const auto request = static_cast<std::size_t>(committed.decoding);
  const auto at = requests_.find(committed.id);
  for (Draft& draft : std::span(proposed_[request]).first(proposals_[request])) {
    find_on_text(draft, committed.tokens);
    const auto levels = static_cast<int>(draft.on_text.size()) - draft.foretold;
    const bool any = draft.tokens.size() > static_cast<std::size_t>(draft.foretold);
    const bool known = draft.on_text.size() < committed.tokens.size();
    const auto record = [&](policy::DraftOutcomes& outcomes) {
      outcomes.record_found(any);
      if (any && levels >= 0) outcomes.record_reach(levels, known && levels < draft.asked);
    };
    record(model_.outcomes(draft.drafter));
    if (at != requests_.end()) record(at->second.acceptance[draft.drafter].outcomes);
  }
}

/// Keeps every draft of a drafter that runs ahead, unless the draft is empty. A draft made here
/// replaces the previous one if the new one is better, or is on trial and not empty.
void Speculator::take(int drafter, std::size_t request, Draft& draft) {
  const bool any = draft.expected_tokens > draft.foretold;
  if (roster_[drafter].runs_ahead()) {
    if (!any) return;
    const std::size_t place = ++beside_[request];
    drafts_[request].resize(std::max(drafts_[request].size(), place + 1));
    std::swap(draft, drafts_[request][place]);
    expected_[request] = std::max(expected_[request], drafts_[request][place].expected_tokens);
    return;
  }
  Draft& best = drafts_[request][0];
  const bool better = draft.expected_tokens > best.expected_tokens;
  if (!better && !(any && on_trial(drafter, request))) return;
  std::swap(draft, best);
  expected_[request] = std::max(expected_[request], best.expected_tokens);
}

/// Sets draft.on_text: the path in the draft tree that agrees with the committed text. The step
/// need not have verified this draft.
void Speculator::find_on_text(Draft& draft, std::span<const TokenId> committed) {
  draft.on_text.clear();
  for (std::size_t t = 0; t < draft.tokens.size(); ++t) {
    const std::size_t level = draft.on_text.size();
    if (level == committed.size()) return;
    const std::int32_t parent = level == 0 ? -1 : draft.on_text.back();
    if (draft.parents[t] == parent && draft.tokens[t] == committed[level])
      draft.on_text.push_back(static_cast<std::int32_t>(t));
  }
}

void Speculator::calibrate(Draft& draft) const {
  draft.expected_tokens = draft.foretold;
  for (std::size_t t = draft.foretold; t < draft.tokens.size(); ++t) {
    const std::int32_t parent = draft.parents[t];
    const double before = parent < 0 ? 1.0 : draft.scores[parent];
    draft.conditional[t] = before > 0 ? draft.scores[t] / before : 0.0;
    draft.values[t] = (parent < 0 ? 1.0 : draft.values[parent]) *
                      model_.estimate(draft.drafter, draft.conditional[t]);
    draft.expected_tokens += draft.values[t];
  }
}

// Joins each request's drafts into one tree, and cuts the tree to the tokens that the policy keeps.
// Foretold tokens always stay.
void Speculator::select() {
  const std::size_t requests = lengths_.size();
  values_.clear();
  offsets_.assign(1, 0);
  joined_.resize(std::max(joined_.size(), requests));
  for (std::size_t i = 0; i < requests; ++i) {
    parts_.clear();
    for (const Draft& draft : drafts_of(i))
      parts_.push_back({draft.tokens, draft.parents, draft.values});
    joined_[i].join(parts_, static_cast<std::size_t>(std::max(0, most_drafted_[i])));
    const std::span<const double> values = joined_[i].values();
    values_.insert(values_.end(), values.begin() + drafts_[i][0].foretold, values.end());
    offsets_.push_back(static_cast<int>(values_.size()));
  }
  keep_.assign(values_.size(), 0);
  if (drafted_) policy_->select(query_, {values_, offsets_}, keep_);

  trees_.clear();
  std::vector<std::uint8_t> keep;  // [tokens] of a request
  for (std::size_t i = 0; i < requests; ++i) {
    keep.assign(drafts_[i][0].foretold, 1);
    keep.insert(keep.end(), keep_.begin() + offsets_[i], keep_.begin() + offsets_[i + 1]);
    joined_[i].keep(keep);
    leave_verified(i);
    step_drafted_ += static_cast<std::uint32_t>(joined_[i].tokens().size());
    trees_.push_back({joined_[i].tokens(), joined_[i].parents()});
  }
}

/// Cuts each draft to the tokens that the step will verify, for record() and tally().
void Speculator::leave_verified(std::size_t request) {
  const std::span<Draft> drafts = drafts_of(request);
  std::vector<std::int32_t> place;  // [tokens] of a draft: new index of a token that stays
  for (std::size_t p = 0; p < drafts.size(); ++p) {
    Draft& draft = drafts[p];
    place.assign(draft.tokens.size(), -1);
    int count = 0;
    for (std::size_t t = 0; t < draft.tokens.size(); ++t) {
      if (!joined_[request].has(p, t)) continue;
      const std::int32_t parent = draft.parents[t];
      place[t] = count;
      draft.tokens[count] = draft.tokens[t];
      draft.parents[count] = parent < 0 ? -1 : place[parent];
      draft.conditional[count] = draft.conditional[t];
      ++count;
    }
    draft.resize(count);
  }
}

/// Records which tokens of each verified draft of a request were accepted.
void Speculator::record(const engine::Committed& committed) {
  const auto at = requests_.find(committed.id);
  std::size_t furthest = 0;
  OptionalIndex drafter;
  for (Draft& draft : drafts_of(committed.decoding)) {
    if (draft.tokens.size() == static_cast<std::size_t>(draft.foretold)) continue;
    find_on_text(draft, committed.tokens.first(committed.path.size()));
    record(draft, committed);
    tally(draft, committed);
    if (drafter && draft.on_text.size() <= furthest) continue;
    furthest = draft.on_text.size();
    drafter = draft.drafter;
  }
  if (drafter && at != requests_.end()) at->second.drafted_by = drafter;
}

// Counts the draft's tokens, and tells the acceptance model how the target judged them. The target
// judged a token if all its ancestors were committed and a token was sampled after them.
void Speculator::record(const Draft& draft, const engine::Committed& committed) {
  const auto foretold = static_cast<std::size_t>(draft.foretold);
  const auto batch = static_cast<std::uint32_t>(lengths_.size());
  const auto response = static_cast<std::uint32_t>(response_[committed.decoding]);
  const std::vector<std::int32_t>& said = draft.on_text;
  std::vector<std::int32_t> depth(draft.tokens.size(), 0);
  bool refuted = false;
  for (std::size_t t = 0; t < draft.tokens.size(); ++t) {
    const std::int32_t parent = draft.parents[t];
    depth[t] = parent < 0 ? 1 : depth[parent] + 1;
    if (t < foretold) continue;
    const auto before = static_cast<std::size_t>(depth[t] - 1);
    const bool accepted = before < said.size() && said[before] == static_cast<std::int32_t>(t);
    counts_.add(draft.drafter, depth[t] - draft.foretold, batch, response, accepted);
    const bool judged = before < committed.tokens.size() && before <= said.size() &&
                        (before == 0 ? parent < 0 : said[before - 1] == parent);
    if (judged) model_.record(draft.drafter, draft.conditional[t], accepted);
    refuted = refuted || (judged && !accepted && before == said.size());
  }
  const auto at = requests_.find(committed.id);
  if (at == requests_.end()) return;
  const auto accepted = static_cast<int>(said.size() - std::min(foretold, said.size()));
  at->second.acceptance[draft.drafter].record(accepted, refuted);
}

// Follows the committed text through the draft, from the foretold tokens on. Tallies at each level
// whether the likeliest child was committed. Ends with the first level where no child was.
void Speculator::tally(const Draft& draft, const engine::Committed& committed) {
  DraftTally& tally = tallies_[draft.drafter];
  const std::vector<std::int32_t>& said = draft.on_text;
  const std::size_t levels = std::min(said.size() + 1, committed.tokens.size());
  for (std::size_t level = draft.foretold; level < levels; ++level) {
    const std::int32_t parent = level == 0 ? -1 : said[level - 1];
    std::int32_t likeliest = -1;
    for (std::size_t t = 0; t < draft.tokens.size(); ++t) {
      if (draft.parents[t] != parent) continue;
      if (likeliest < 0 || draft.conditional[t] > draft.conditional[likeliest])
        likeliest = static_cast<std::int32_t>(t);
    }
    if (likeliest < 0) return;
    ++tally.tried;
    tally.accepted += draft.tokens[likeliest] == committed.tokens[level] ? 1 : 0;
  }
}

std::vector<protocol::DraftedFor> Speculator::drafted_for() const {
  std::vector<protocol::DraftedFor> drafted;
  for (const auto& [id, request] : requests_) {
    if (!request.drafted_by) continue;
    const std::int32_t drafter = *request.drafted_by;
    const double acceptance = next_accepted(request, static_cast<std::size_t>(drafter));
    drafted.push_back({id, drafter, static_cast<float>(acceptance)});
  }
  return drafted;
}

void Speculator::commit(std::span<const engine::Committed> committed, double seconds) {
  policy::StepOutcome outcome;
  outcome.draft_rows = static_cast<int>(step_drafted_);
  outcome.draft_seconds = draft_seconds_;
  outcome.step_seconds = seconds;
  step_accepted_ = 0;
  for (const engine::Committed& c : committed) {
    if (c.decoding >= 0) outcome.committed += static_cast<int>(c.tokens.size());
    step_accepted_ += static_cast<std::uint32_t>(c.path.size());
    if (drafted_ && c.decoding >= 0) {
      record(c);
      judge_proposed(c);
    }
    log_.add(c);
    if (c.finished) requests_.erase(c.id);
  }
  if (listens_ || log_.full() || requests_.empty()) log_.tell(roster_, clock_.now());
  outcome.accepted = static_cast<int>(step_accepted_);
  policy_->observe(outcome);
}

}  // namespace paceline::speculation
