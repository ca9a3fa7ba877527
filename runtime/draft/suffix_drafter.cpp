#include "runtime/draft/suffix_drafter.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>

namespace paceline::draft {
namespace {

/// Most requests for which one thread has drafted before another thread would wake up.
constexpr int kAloneSlots = 16;

/// The store's limits. A group that was dropped and begins anew has the same time to live.
StoreLimits store_limits(const SuffixDrafterOptions& options) {
  StoreLimits limits = options.store;
  limits.default_ttl = options.ttl;
  return limits;
}

}  // namespace

SuffixDrafter::SuffixDrafter(const SuffixDrafterOptions& options, ThreadPool& pool)
    : options_(options),
      store_(store_limits(options)),
      pool_(pool),
      scratch_(pool.size()),
      second_(pool.size()),
      texts_(pool.size()),
      tallies_(kAgeClasses - 1) {}

SuffixDrafter::Request& SuffixDrafter::request(RequestId id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) throw std::logic_error("draft for a request that was not started");
  return at->second;
}

void SuffixDrafter::start(const DraftStart& start, double now) {
  const auto [at, added] = requests_.try_emplace(start.id);
  if (!added) throw std::logic_error("a request was started twice");
  Request& request = at->second;
  request.text.assign(start.prompt.begin(), start.prompt.end());
  request.prompt_size = start.prompt.size();
  store_.register_group(start.id.prompt, options_.ttl, now, start.prompt);
  if (!start.response.empty()) commit(start.id, start.response, now);
}

void SuffixDrafter::commit(RequestId id, std::span<const TokenId> tokens, double now) {
  Request& r = request(id);
  if (tokens.empty()) return;
  judge(r.forecast, tokens);
  r.text.insert(r.text.end(), tokens.begin(), tokens.end());
  store_.keep(id.prompt, now);
}

/// Brings the group's tree up to the texts of all of its requests.
void SuffixDrafter::tell_group(std::uint32_t prompt, double now) {
  for (auto at = requests_.lower_bound({prompt, 0});
       at != requests_.end() && at->first.prompt == prompt; ++at) {
    tell_text(at->first, at->second, now);
  }
}

/// Brings the group's tree up to the request's text.
void SuffixDrafter::tell_text(RequestId id, Request& r, double now) {
  const std::span<const TokenId> response = r.response();
  if (r.in_group == response.size()) return;
  const std::uint64_t held =
      store_.update(id.prompt, id.sample, r.in_group, response.subspan(r.in_group), now);
  if (held < r.in_group) {  // the group was dropped for its memory or age, and has begun anew
    store_.update(id.prompt, id.sample, held, response.subspan(held), now);
  }
  r.in_group = response.size();
}

/// Brings the request's own tree up to its text.
void SuffixDrafter::tell_own(Request& r) const {
  if (r.own == nullptr) {
    r.own = std::make_unique<SuffixTree>(options_.store.depth);
    r.own->add_sequence();
  }
  r.own->append(0, std::span(r.text).subspan(r.own->tokens(0).size()));
}

void SuffixDrafter::leave(RequestId id, double now) {
  tell_text(id, request(id), now);
  requests_.erase(id);
  store_.expire(now);
}

void SuffixDrafter::finish(RequestId id, double now) {
  leave(id, now);
  store_.shrink(id.prompt, id.sample);
}

void SuffixDrafter::hear(RequestId id, std::uint64_t offset, std::span<const TokenId> tokens,
                         bool ended, double now) {
  store_.take_in(id.prompt, id.sample, offset, tokens, now);
  if (ended) store_.shrink(id.prompt, id.sample);
}

void SuffixDrafter::recall(RequestId id, std::uint32_t age, std::uint64_t offset,
                           std::span<const TokenId> tokens, bool ended, double now) {
  store_.take_in_earlier(id.prompt, age, id.sample, offset, tokens, ended, now);
}

std::vector<AcceptanceCell> SuffixDrafter::recalled() const {
  std::vector<AcceptanceCell> cells;
  for (std::uint32_t c = 0; c < tallies_.size(); ++c) {
    for (std::uint32_t p = 0; p < tallies_[c].size(); ++p) {
      const Tally& tally = tallies_[c][p];
      if (tally.tried > 0)
        cells.push_back(
            {.drafter = c, .position = p + 1, .drafted = tally.tried, .accepted = tally.right});
    }
  }
  return cells;
}

/// Judges a forecast by the tokens that were said after the last proposal.
void SuffixDrafter::judge(Forecast& forecast, std::span<const TokenId> said) {
  for (const Forecast::Next& next : forecast.next)
    trust_.record(next.age_class, next.probability, next.token == said.front());
  forecast.next.clear();
  if (forecast.age_class == 0) return;
  std::vector<Tally>& tallies = tallies_[forecast.age_class - 1];
  std::int32_t parent = -1;
  for (std::size_t level = 0; level < said.size(); ++level) {
    std::int32_t likeliest = -1;
    std::int32_t right = -1;
    for (std::int32_t t = 0; t < static_cast<std::int32_t>(forecast.tokens.size()); ++t) {
      if (forecast.parents[t] != parent) continue;
      if (likeliest < 0) likeliest = t;  // the likelier sibling comes first
      if (forecast.tokens[t] == said[level]) right = t;
    }
    if (likeliest < 0) break;
    tallies.resize(std::max(tallies.size(), level + 1));
    ++tallies[level].tried;
    tallies[level].right += right == likeliest ? 1 : 0;
    if (right < 0) break;
    parent = right;
  }
  forecast.age_class = 0;
}

/// Upper bound of the match's length, at most `most`, when the response has `now` tokens.
int SuffixDrafter::Match::bound(const EarlierTree& texts, std::size_t now, int most) const {
  const bool known = version == texts.version && now >= at;
  return known ? static_cast<int>(std::min<std::size_t>(most, length + (now - at))) : most;
}

/// Puts the best draft of earlier steps into the slot if its score is above `score`, the score of
/// the draft there. `group`: the slot by which this step's texts were asked, except for its text.
void SuffixDrafter::draft_from_earlier(Request& request, DraftSlot& slot, SpeculationSlot& group,
                                       double score, SpeculationScratch& scratch) const {
  const auto earlier = store_.earlier(slot.id.prompt);
  Forecast& forecast = request.forecast;
  forecast.next.clear();
  forecast.age_class = 0;
  if (earlier.empty()) return;
  const auto foresee = [&](int age_class, const DraftOutput& draft, int count, float trust) {
    if (count > 0)
      forecast.next.push_back(
          {age_class, draft.tokens[0], static_cast<double>(draft.scores[0] / trust)});
  };
  foresee(0, slot.output, slot.count, 1);
  const std::size_t said = request.response().size() + slot.assumed.size();
  request.matches.resize(earlier.size());
  for (std::size_t i = 0; i < earlier.size(); ++i) {
    const std::unique_ptr<EarlierTree>& texts = earlier[i];
    Match& match = request.matches[i];
    const int most =
        std::min(options_.speculation.max_match, longest_match(texts->tree, slot.limits));
    group.options.max_match = match.bound(*texts, said, most);
    const int age = age_class(texts->age);
    group.options.trust = trust_.trust(age);
    const DraftResult draft =
        speculate(texts->tree, group.text, group.options, group.output, scratch);
    if (slot.assumed.empty()) {
      const bool known = draft.longest >= 0 && draft.longest < most;
      match = {known ? texts->version : 0, said, draft.longest};
    }
    foresee(age, group.output, draft.count, group.options.trust);
    if (draft.score <= score) continue;
    score = draft.score;
    copy_draft(group.output, slot.output, draft.count);
    slot.count = draft.count;
    forecast.age_class = age;
  }
  // A draft that follows assumed tokens does not tell the next committed tokens.
  if (!slot.assumed.empty()) {
    forecast.next.clear();
    forecast.age_class = 0;
  }
  if (forecast.age_class == 0) return;
  forecast.tokens.assign(slot.output.tokens.begin(), slot.output.tokens.begin() + slot.count);
  forecast.parents.assign(slot.output.parents.begin(), slot.output.parents.begin() + slot.count);
}

void SuffixDrafter::propose(std::span<DraftSlot> batch, double now, Levels* /*levels*/) {
  store_.expire(now);
  batch_requests_.clear();
  std::optional<std::uint32_t> told;  // siblings mostly follow one another
  for (const DraftSlot& slot : batch) {
    batch_requests_.push_back(&request(slot.id));
    beside_earlier_ += store_.earlier(slot.id.prompt).empty() ? 0 : 1;
    if (told != slot.id.prompt) tell_group(slot.id.prompt, now);
    told = slot.id.prompt;
  }
  proposals_ += batch.size();

  const auto draft = [&](int thread, int item) {
    DraftSlot& slot = batch[item];
    Request& r = *batch_requests_[item];
    tell_own(r);
    const auto depth = static_cast<std::size_t>(options_.store.depth);
    const std::size_t response = r.response().size();
    std::span<const TokenId> text = r.text;
    text = text.last(std::min(text.size(), depth));
    if (!slot.assumed.empty()) {
      std::vector<TokenId>& joined = texts_[thread];
      joined.assign(text.begin(), text.end());
      joined.insert(joined.end(), slot.assumed.begin(), slot.assumed.end());
      text = std::span<const TokenId>(joined).last(std::min(joined.size(), depth));
    }
    SpeculationSlot group;
    group.group = slot.id.prompt;
    group.sample = slot.id.sample;
    group.size = slot.assumed.empty() ? response : kInNoTree;
    group.text = text.last(std::min(text.size(), response + slot.assumed.size()));
    group.options = options_.speculation;
    group.options.limits = slot.limits;
    const int capacity = std::max(0, std::min(slot.limits.max_tokens, slot.output.capacity()));
    group.output = second_[thread].second(capacity);

    const DraftResult own =
        slot.assumed.empty()
            ? speculate(*r.own, 0, group.options, slot.output, scratch_[thread])
            : speculate(*r.own, text, group.options, slot.output, scratch_[thread]);
    store_.speculate(group, scratch_[thread]);
    slot.count = own.count;
    if (group.result.score > own.score) {
      copy_draft(group.output, slot.output, group.result.count);
      slot.count = group.result.count;
    }
    group.text = text.last(std::min(text.size(), kPromptEnd + response + slot.assumed.size()));
    draft_from_earlier(r, slot, group, std::max(own.score, group.result.score), scratch_[thread]);
  };
  pool_.for_units(static_cast<int>(batch.size()), draft, kAloneSlots);
}

std::size_t SuffixDrafter::bytes() const {
  std::size_t bytes = store_.bytes();
  for (const auto& [id, request] : requests_) {
    bytes += request.text.capacity() * sizeof(TokenId);
    if (request.own != nullptr) bytes += request.own->bytes();
  }
  return bytes;
}

}  // namespace paceline::draft
