#include "runtime/engine/batcher.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::engine {

Batcher::Batcher(const BatcherLimits& limits, const SamplingParams& sampling,
                 std::vector<TokenId> stops, const TokenText* text)
    : limits_(limits),
      sampling_(sampling),
      stops_(std::move(stops)),
      text_(text),
      kv_(limits.owners, limits.kv_blocks, limits.kv_block),
      pictures_(limits.picture_rows) {
  if (!sampling_.stop_strings.empty() && text_ == nullptr) {
    throw std::logic_error("stop strings need the text of tokens");
  }
}

/// Response tokens at which the response, or its turn, ends at the latest.
std::int32_t Batcher::turn_end(const Trajectory& response, const RequestSampling& own) const {
  const std::int32_t most = max_tokens(own);
  if (limits_.turn_tokens == 0) return most;
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(most, std::int64_t{response.turn_begin()} + limits_.turn_tokens));
}

/// Most positions that a request can reach with this prompt length and lease.
std::int32_t Batcher::longest(std::int32_t prompt_length, std::uint32_t until,
                              const RequestSampling& own) const {
  const auto response = std::min<std::int64_t>(max_tokens(own), until);
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(limits_.context, prompt_length + response));
}

std::int32_t Batcher::blocks_needed(const Admission& request) const {
  return kv::Sequences::blocks_needed(
      longest(static_cast<std::int32_t>(request.prompt.size()),
              std::numeric_limits<std::uint32_t>::max(), request.sampling),
      limits_.kv_block);
}

/// Owners in the order in which a request asks them for room. Siblings go to one owner and share
/// the prompt's KV there, as long as the owner has less than its share of a full batch.
std::vector<std::int32_t> Batcher::owners_for(std::uint32_t prompt, OptionalIndex wanted) const {
  struct Candidate {
    std::int32_t owner;
    bool preferred;
    std::int32_t requests = 0;
    std::int32_t free = 0;
  };
  if (kv_.owners() == 1) return {0};
  const std::int32_t share = (limits_.max_batch + kv_.owners() - 1) / kv_.owners();
  std::vector<Candidate> all;
  for (std::int32_t o = 0; o < kv_.owners(); ++o) {
    Candidate& c = all.emplace_back(Candidate{o, false});
    for (const Request& r : requests_) c.requests += owner(r) == o ? 1 : 0;
    c.free = kv_.blocks_free(o);
    c.preferred = wanted ? *wanted == o : c.requests < share && kv_.knows(o, prompt);
  }
  std::ranges::stable_sort(all, [](const Candidate& a, const Candidate& b) {
    if (a.preferred != b.preferred) return a.preferred;
    return a.requests != b.requests ? a.requests < b.requests : a.free > b.free;
  });
  std::vector<std::int32_t> owners;
  for (const Candidate& c : all) owners.push_back(c.owner);
  return owners;
}

Batcher::Requests::iterator Batcher::end_of(std::int32_t owner) {
  return std::find_if(requests_.begin(), requests_.end(),
                      [&](const Request& r) { return this->owner(r) > owner; });
}

bool Batcher::admit(Admission& request, OptionalIndex owner) {
  if (active() >= limits_.max_batch) return false;
  const auto prompt = static_cast<std::int32_t>(request.prompt.size());
  const auto text = prompt + static_cast<std::int32_t>(request.trajectory.tokens.size());
  const std::int32_t most = std::max(text, longest(prompt, request.until, request.sampling));
  const std::int32_t positions = limits_.growth == 0 ? most : std::min(most, text + limits_.growth);
  const std::uint32_t index = request.trajectory.id.prompt;
  TextPictures pictures =
      TextPictures::of(index, request.pictures, request.files, limits_.picture_merge);
  if (!pictures.empty() && pictures.rows.back().first + pictures.rows.back().count() >= prompt)
    throw std::logic_error("a prompt that ends with a picture");  // its last row is decoded
  std::vector<TokenId> identity;
  if (!pictures.empty()) identity = pictures_.identity(request.prompt, pictures);
  const std::span<const TokenId> compared = pictures.empty() ? request.prompt : identity;
  std::optional<kv::Handle> handle;
  for (const std::int32_t o : owners_for(index, owner)) {
    handle = kv_.open(o, index, prompt, std::max(prompt, positions),
                      limits_.share_prefixes ? compared : std::span<const TokenId>());
    if (handle) break;
  }
  if (!handle) return false;

  const std::int32_t turn_end = this->turn_end(request.trajectory, request.sampling);
  Request& r = *requests_.insert(end_of(kv_.owner_of(*handle)),
                                 Request{.trajectory = std::move(request.trajectory),
                                         .prompt = std::move(request.prompt),
                                         .pictures = std::move(pictures),
                                         .kv = *handle,
                                         .noise = request.noise,
                                         .version = request.version,
                                         .until = request.until,
                                         .sampling = std::move(request.sampling),
                                         .longest = turn_end,
                                         .banned = {},
                                         .matcher = StopMatcher(sampling_.stop_strings),
                                         .arrival = {}});
  if (r.sampling.stops) {
    if (!r.sampling.stops->strings.empty() && text_ == nullptr)
      throw std::logic_error("stop strings need the text of tokens");
    r.matcher = StopMatcher(r.sampling.stops->strings);
    if (sampling_.min_tokens > 0) r.banned = banned_early(sampling_, r.sampling.stops->ids);
  }
  note_text(r);
  if (text_ != nullptr) {  // the turn so far, if it goes on
    const std::span<const TokenId> tokens = r.trajectory.tokens;
    for (const TokenId token : tokens.subspan(r.trajectory.turn_begin()))
      r.matcher.append(text_->bytes_of(token));
  }
  settled_ = false;
  return true;
}

/// Notes the tokens and biases of a request that comes in, as far as sampling needs them.
void Batcher::note_text(Request& r) const {
  r.penalised = r.sampling.draw.value_or(sampling_.draw()).penalises();
  r.notes.note(r.sampling.logit_bias ? *r.sampling.logit_bias : sampling_.logit_bias);
  if (!r.penalised) return;
  r.notes.note(r.prompt, false);
  note_response(r.notes, r.trajectory.tokens, r.trajectory.turns);
}

const Batcher::Request& Batcher::at(RequestId id) const {
  const auto it = std::find_if(requests_.begin(), requests_.end(),
                               [&](const Request& r) { return r.trajectory.id == id; });
  if (it == requests_.end()) throw std::logic_error("a request that does not run");
  return *it;
}

bool Batcher::runs(RequestId id) const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [&](const Request& r) { return r.trajectory.id == id; });
}

std::vector<RunningRequest> Batcher::running() const {
  std::vector<RunningRequest> running;
  for (const Request& r : requests_)
    running.push_back({r.trajectory.id, static_cast<std::uint32_t>(r.response())});
  return running;
}

std::vector<std::int32_t> Batcher::table(RequestId id) const { return kv_.table(at(id).kv); }

std::int32_t Batcher::own_from(RequestId id) const { return kv_.own_from(at(id).kv); }

void Batcher::expect(RequestId id, const Arrival& arrival) {
  Request& r = at(id);
  if (arrival.first < kv_.own_from(r.kv) || arrival.first % limits_.kv_block != 0 ||
      arrival.end >= r.text())
    throw std::logic_error("KV that arrives where it has no place");
  r.arrival = arrival;
  r.arrived = false;
}

void Batcher::arrived(RequestId id, bool complete) {
  Request& r = at(id);
  if (complete) {
    r.arrived = true;
  } else {
    r.arrival = {};
  }
}

bool Batcher::resize(std::int32_t blocks) {
  for (const Request& r : requests_) {
    if (r.arrival.end == 0) continue;
    const std::vector<std::int32_t> table = kv_.table(r.kv);
    if (std::any_of(table.begin(), table.end(),
                    [&](std::int32_t block) { return block >= blocks * kv_.owners(); }))
      return false;
  }
  if (!kv_.resize(blocks)) return false;
  settled_ = false;  // leases that wait for room may be renewed now
  return true;
}

const Step& Batcher::kv_work() {
  step_.clear();
  kv_.take_work(step_.kv);
  return step_;
}

/// Moves the request out, in a form in which it can be admitted again.
Admission Batcher::take(Request& r) {
  return {std::move(r.trajectory),
          std::move(r.prompt),
          r.noise,
          r.version,
          std::max(r.until, r.renewed),
          std::move(r.sampling),
          std::move(r.pictures.pictures),
          std::move(r.pictures.files)};
}

Departure Batcher::leave(RequestId id) {
  Request& r = at(id);
  Departure departure{{}, kv_.detach(r.kv)};
  departure.request = take(r);
  requests_.remove_if([&](const Request& other) { return &other == &r; });
  return departure;
}

Departure Batcher::copy(RequestId id) {
  Request copied = at(id);
  return {take(copied), kv_.share(copied.kv)};
}

std::vector<RequestId> Batcher::ending(std::uint32_t tokens) {
  std::vector<RequestId> ids;
  for (Request& r : requests_) {
    if (r.named || r.trajectory.tokens.size() + std::uint64_t{tokens} < r.until) continue;
    r.named = true;
    ids.push_back(r.trajectory.id);
  }
  return ids;
}

void Batcher::renew(RequestId id, std::uint32_t until) {
  at(id).renewed = until;
  settled_ = false;
}

/// Makes room for the request's next rows, in small steps. Returns false if the pool is too full.
bool Batcher::grow(const Request& r) {
  const std::int32_t text = r.text();
  const std::int32_t most = longest(r);
  if (kv_.reserved(r.kv) >= std::min(most, text + limits_.kv_block)) return true;
  // Only a draft needs more room than the one row that every step computes.
  return kv_.reserve(r.kv, std::min(most, text + limits_.growth)) || kv_.reserved(r.kv) >= text;
}

/// Puts a renewed lease in force, if there is room for it.
void Batcher::go_on(Request& r) {
  if (r.renewed == 0) return;
  if (limits_.growth == 0 && !kv_.reserve(r.kv, longest(r.prompt_length(), r.renewed, r.sampling)))
    return;
  r.until = std::exchange(r.renewed, 0);
  r.named = false;
}

/// Whether the request is at the end of its lease.
bool Batcher::rests(const Request& r) const { return r.trajectory.tokens.size() >= r.until; }

void Batcher::park(Requests::iterator request) {
  kv_.close(request->kv);
  parked_.insert(parked_.begin(), take(*request));
  requests_.erase(request);
}

/// Gives every request room for its part of the next step.
void Batcher::settle() {
  if (settled_) return;
  for (Request& r : requests_) go_on(r);
  for (std::int32_t o = 0; o < kv_.owners(); ++o) unstick(o);
  // Leases still to be renewed wait for parcels to be released.
  settled_ = std::none_of(requests_.begin(), requests_.end(),
                          [](const Request& r) { return r.renewed != 0; });
  if (limits_.growth == 0) return;
  for (std::int32_t o = 0; o < kv_.owners(); ++o) grow_all(o);
}

/// If all requests of an owner rest and wait for room that the others hold, parks the last ones
/// until one can go on.
void Batcher::unstick(std::int32_t owner) {
  const auto first = end_of(owner - 1);
  const auto end = end_of(owner);
  const auto stuck = [this](const Request& r) { return rests(r) && r.renewed != 0; };
  while (std::distance(first, end) > 1 && std::all_of(first, end, stuck)) {
    park(std::prev(end));
    for (auto it = first; it != end; ++it) go_on(*it);
  }
}

/// Makes room for all requests of an owner. If a request lacks room, parks the last request
/// that expects no KV: arriving KV is being written to the blocks of its request.
void Batcher::grow_all(std::int32_t owner) {
  const auto end = end_of(owner);
  for (auto it = end_of(owner - 1); it != end;) {
    if (grow(*it)) {
      ++it;
      continue;
    }
    auto last = std::prev(end);
    while (last != it && last->arrival.end > 0) --last;
    const bool itself = last == it;
    if (itself) ++it;
    park(last);
  }
}

/// Positions left to compute, up to KV that arrives or the end of the text. At the end of the lease
/// the last position is left out, so that no further token is sampled.
std::int32_t Batcher::remaining(const Request& r) const {
  const std::int32_t length = kv_.length(r.kv);
  if (length < r.arrival.end) return std::max(length, r.arrival.first) - length;
  return r.text() - (rests(r) ? 1 : 0) - length;
}

bool Batcher::decodes(const Request& r) const { return kv_.length(r.kv) + 1 == r.text(); }

/// Counts KV that has arrived as the request's, once all positions before it are computed.
void Batcher::take_arrived(Request& r) {
  if (!r.arrived || !kv_.ready(r.kv)) return;
  const std::int32_t length = kv_.length(r.kv);
  if (length < r.arrival.first) return;
  if (length < r.arrival.end) kv_.advance(r.kv, r.arrival.end - length);
  r.arrival = {};
  r.arrived = false;
}

bool Batcher::expects(RequestId id) {
  Request& r = at(id);
  take_arrived(r);
  return r.arrival.end > 0;
}

/// Whether the request has rows for a step. It has none while it waits for its prompt or its KV, or
/// rests.
bool Batcher::can_run(Request& r) {
  if (!kv_.ready(r.kv)) return false;
  take_arrived(r);
  const bool runs = remaining(r) > 0;
  kv_.pause(r.kv, !runs);
  return runs;
}

StepPart& Batcher::add_part(Request& r, std::int32_t rows) {
  r.planned = rows;
  step_.parts.push_back(
      {static_cast<std::int32_t>(step_.tokens.size()), rows, kv_.length(r.kv), r.kv});
  of_part_ = {};
  ++counts_.requests;
  return step_.parts.back();
}

/// Sets the fields that all samples of the last part have in common. Called if it has samples.
void Batcher::note_part(const Request& r) {
  of_part_.draw = step_.add_draw(r.sampling.draw);
  of_part_.first_note = static_cast<std::int32_t>(step_.notes.size());
  of_part_.notes = static_cast<std::int32_t>(r.notes.all().size());
  step_.notes.insert(step_.notes.end(), r.notes.all().begin(), r.notes.all().end());
}

StepSample& Batcher::add_sample(const Request& r, std::int32_t row, std::int32_t depth) {
  const std::int32_t index = r.response() + depth;
  StepSample& sample = step_.samples.emplace_back(of_part_);
  sample.noise = r.noise;
  sample.row = row;
  sample.index = index;
  if (index < sampling_.min_tokens) step_.ban_stops(sample, r.sampling.stops ? &r.banned : nullptr);
  return sample;
}

/// Notes for a sample the draft tokens on the path to its row, as if they were sampled.
void Batcher::note_path(StepSample& sample, std::int32_t row) {
  sample.first_since = static_cast<std::int32_t>(step_.notes.size());
  sample.since = rows_.depth()[row];
  const std::int32_t first_row = sample.row - row;
  for (; row > 0; row = rows_.parent()[row])
    step_.notes.push_back({.token = step_.tokens[first_row + row], .sampled = 1, .bias = 0});
}

bool Batcher::ends(const Request& r, TokenId token) const {
  const std::vector<TokenId>& stops = r.sampling.stops ? r.sampling.stops->ids : stops_;
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

void Batcher::add_rows(Request& r, std::int32_t rows) {
  const std::int32_t first = kv_.length(r.kv);
  const std::int32_t end = first + rows;
  const std::int32_t prompt = r.prompt_length();
  const StepPart& part = add_part(r, rows);
  const auto add = [this](const std::vector<TokenId>& tokens, std::int32_t from, std::int32_t to) {
    if (from < to)
      step_.tokens.insert(step_.tokens.end(), tokens.begin() + from, tokens.begin() + to);
  };
  add(r.prompt, first, std::min(end, prompt));
  add(r.trajectory.tokens, std::max(first - prompt, 0), end - prompt);
  draft_index_.resize(step_.tokens.size(), -1);
  if (end < r.text()) return;
  note_part(r);
  add_sample(r, part.first_row + rows - 1, 0);
}

void Batcher::add_draft(Request& r, const DraftTree& draft) {
  if (static_cast<std::int32_t>(draft.tokens.size()) > most_drafted(r))
    throw std::logic_error("a draft is longer than there is room for");
  rows_.lay_out(draft);
  StepPart& part = add_part(r, rows_.size());
  note_part(r);
  if (!rows_.chain()) {
    part.first_parent = static_cast<std::int32_t>(step_.parents.size());
    step_.parents.insert(step_.parents.end(), rows_.parent().begin(), rows_.parent().end());
  }
  draft_index_.insert(draft_index_.end(), rows_.draft().begin(), rows_.draft().end());
  for (std::int32_t row = 0; row < rows_.size(); ++row) {
    const std::int32_t token = rows_.draft()[row];
    step_.tokens.push_back(token < 0 ? r.last() : draft.tokens[token]);
    StepSample& sample = add_sample(r, part.first_row + row, rows_.depth()[row]);
    if (r.penalised) note_path(sample, row);
  }
  counts_.drafted += rows_.size() - 1;
}

// A response ends at its greatest length, whatever is drafted. A tree takes a slot of the cache for
// each of its tokens, so its size, not its depth alone, is limited by the request's room.
std::int32_t Batcher::most_drafted(const Request& r) const {
  return std::min(longest(r) - 1, kv_.reserved(r.kv)) - r.text();
}

std::span<const Decoding> Batcher::decoding() {
  settle();
  decoding_.clear();
  prefill_rows_ = 0;
  for (Request& r : requests_) {
    if (!can_run(r)) continue;
    if (decodes(r)) {
      decoding_.push_back({r.trajectory.id, r.response(), r.text(), most_drafted(r)});
    } else {
      prefill_rows_ = std::min(prefill_rows_ + remaining(r), limits_.prefill_chunk);
    }
  }
  return decoding_;
}

/// Adds the rotary positions of the step's rows, if some of its texts have pictures.
void Batcher::turn_rows() {
  const auto shown = [](const Request& r) { return r.planned > 0 && !r.pictures.empty(); };
  if (std::none_of(requests_.begin(), requests_.end(), shown)) return;
  auto part = step_.parts.begin();
  for (const Request& r : requests_) {
    if (r.planned > 0) add_rotary(step_, *part++, r.pictures.rows);
  }
}

/// Number of owners that have rows of prompts for the next step. Each gets an even share of
/// prefill_chunk, and what earlier owners left of their shares.
std::int32_t Batcher::prefilling_owners() {
  if (kv_.owners() == 1) return 1;
  std::int32_t owners = 0;
  std::int32_t last = -1;
  for (Request& r : requests_) {
    if (owner(r) == last || !can_run(r) || decodes(r)) continue;
    last = owner(r);
    ++owners;
  }
  return owners;
}

const Step& Batcher::plan(std::span<const DraftTree> drafts) {
  settle();
  step_.clear();
  draft_index_.clear();
  counts_ = {};
  pictures_.begin();
  std::int32_t left = limits_.prefill_chunk;
  std::int32_t sharers = prefilling_owners();
  std::int32_t sharer = -1;
  std::int32_t budget = 0;
  std::size_t decoding = 0;
  for (Request& r : requests_) {
    r.planned = 0;
    if (!can_run(r)) continue;
    if (decodes(r)) {
      const std::size_t index = decoding++;
      if (drafts.empty() || drafts[index].tokens.empty()) {
        add_rows(r, 1);
      } else {
        add_draft(r, drafts[index]);
      }
      counts_.decode_tokens += r.planned;
    } else if (left > 0) {
      if (owner(r) != std::exchange(sharer, owner(r))) {
        budget = (left + sharers - 1) / sharers;
        --sharers;
      }
      if (budget == 0) continue;
      const std::int32_t rows =
          pictures_.add(r.pictures, kv_.length(r.kv), std::min(remaining(r), budget), step_);
      if (rows == 0) continue;  // the pictures of other requests leave no room
      const std::int32_t end = kv_.length(r.kv) + rows;
      add_rows(r, rows);
      budget -= rows;
      left -= rows;
      counts_.prefill_tokens += rows;
      const std::int32_t first = std::max(end - rows, r.prompt_length());
      counts_.recomputed += std::max(std::min(end, r.known()) - first, 0);
    }
  }
  turn_rows();
  kv_.take_work(step_.kv);
  counts_.pictures = static_cast<std::uint32_t>(std::count_if(
      step_.files.begin(), step_.files.end(), [](const auto& f) { return f != nullptr; }));
  counts_.shared = static_cast<std::uint32_t>(kv_.positions_shared() - shared_);
  shared_ = kv_.positions_shared();
  return step_;
}

/// Appends a sampled token. Returns why the response ends, if it does. `sample`: index in the step.
std::optional<FinishReason> Batcher::append(Request& r, std::size_t sample) {
  const kernels::Sampled& sampled = result_.sampled[sample];
  Trajectory& t = r.trajectory;
  t.tokens.push_back(sampled.token);
  if (r.penalised) r.notes.note({.token = sampled.token, .sampled = 1, .bias = 0});
  t.logprob.push_back(sampled.logprob);
  t.sampling_logprob.push_back(sampled.sampling_logprob);
  if (sampling_.keep_masks) {
    const std::span<const TokenId> kept =
        result_.kept_ids.subspan(first_kept_[sample], sampled.kept);
    t.kept.push_back(sampled.kept);
    t.kept_ids.insert(t.kept_ids.end(), kept.begin(), kept.end());
  }
  const auto width = static_cast<std::size_t>(sampling_.logprobs);
  for (const kernels::Ranked& token : result_.top.subspan(sample * width, width)) {
    t.top_ids.push_back(token.token);
    t.top_logprob.push_back(token.score);
  }
  const std::int32_t length = r.response();
  const bool matched = text_ != nullptr && r.matcher.append(text_->bytes_of(sampled.token));
  if (ends(r, sampled.token)) return FinishReason::stop_id;
  if (matched && length >= sampling_.min_tokens) return FinishReason::stop_string;
  if (length >= r.longest) return FinishReason::length;
  if (r.text() >= limits_.context) return FinishReason::context;
  return std::nullopt;
}

// The part's row that drafts `token` after row `row`; -1: there is none.
std::int32_t Batcher::child_row(const StepPart& part, std::int32_t row, TokenId token) const {
  for (std::int32_t child = row + 1; child < part.rows; ++child) {
    const std::int32_t parent =
        part.first_parent < 0 ? child - 1 : step_.parents[part.first_parent + child];
    if (parent < row) break;  // depth first: no later row follows `row`
    if (parent == row && step_.tokens[part.first_row + child] == token) return child;
  }
  return -1;
}

/// Walks from the last committed token along the draft for as long as the target samples the same
/// tokens. The part's rows have the samples from `first_sample` on.
std::optional<FinishReason> Batcher::verify(Request& r, const StepPart& part,
                                            std::size_t first_sample) {
  std::optional<FinishReason> reason;
  for (std::int32_t row = 0; row >= 0 && !reason;) {
    kv_.keep(r.kv, part.first_position + row);
    computed_rows_.push_back(part.first_row + row);
    const TokenId token = result_.sampled[first_sample + row].token;
    reason = append(r, first_sample + row);
    committed_tokens_.push_back(token);
    row = child_row(part, row, token);
    if (row >= 0) committed_path_.push_back(draft_index_[part.first_row + row]);
  }
  return reason;
}

std::vector<Trajectory> Batcher::commit(const StepResult& result) {
  std::vector<Trajectory> finished;
  const std::span<const kernels::Sampled> sampled = result.sampled.first(step_.samples.size());
  result_ = result;
  if (result.top.size() < sampled.size() * sampling_.logprobs)
    throw std::logic_error("probable tokens of other positions than were sampled");
  first_kept_.clear();
  if (sampling_.keep_masks) {
    std::size_t next = 0;
    for (const kernels::Sampled& sample : sampled) {
      first_kept_.push_back(next);
      next += static_cast<std::size_t>(sample.kept);
    }
    if (next > result.kept_ids.size())
      throw std::logic_error("masks of other tokens than were sampled");
  }
  settled_ = false;
  routed_places_.clear();
  committed_.clear();
  committed_tokens_.clear();
  committed_path_.clear();
  committed_tokens_.reserve(sampled.size());  // spans into them stay valid
  committed_path_.reserve(sampled.size());
  computed_.clear();
  computed_rows_.clear();
  computed_rows_.reserve(step_.tokens.size());
  std::size_t next_sample = 0;
  std::size_t next_part = 0;
  std::int32_t decoding = 0;
  for (auto it = requests_.begin(); it != requests_.end();) {
    Request& r = *it;
    const std::int32_t rows = std::exchange(r.planned, 0);
    if (rows == 0) {
      ++it;
      continue;
    }
    const StepPart& part = step_.parts[next_part++];
    Committed done;
    done.id = r.trajectory.id;
    const std::size_t first_token = committed_tokens_.size();
    const std::size_t first_accepted = committed_path_.size();
    const std::size_t first_computed = computed_rows_.size();
    std::optional<FinishReason> reason;
    if (decodes(r)) {
      done.decoding = decoding++;
      reason = verify(r, part, next_sample);
      next_sample += rows;
    } else {
      kv_.advance(r.kv, rows);
      for (std::int32_t row = 0; row < rows; ++row) computed_rows_.push_back(part.first_row + row);
      if (kv_.length(r.kv) == r.text()) {
        committed_tokens_.push_back(sampled[next_sample].token);
        reason = append(r, next_sample++);
      }
    }
    if (committed_tokens_.size() > first_token) {
      done.tokens = std::span(committed_tokens_).subspan(first_token);
      done.path = std::span(committed_path_).subspan(first_accepted);
      done.finished = reason.has_value() && limits_.turn_tokens == 0;
      committed_.push_back(done);
    }
    if (reason) r.trajectory.finish_reason = *reason;
    if (reason && limits_.turn_tokens > 0) turns_over_.push_back(done.id);
    if (reason && limits_.turn_tokens == 0) {
      if (sampling_.keep_routing) {
        const std::size_t first = first_routed(r.trajectory.id, r.prompt.size());
        routed_places_.push_back(kv_.places(r.kv, static_cast<std::int32_t>(first)));
      }
      finished.push_back(std::move(r.trajectory));
      kv_.close(r.kv);
      it = requests_.erase(it);
    } else {
      computed_.push_back(
          {done.id, part.first_position, std::span(computed_rows_).subspan(first_computed)});
      ++it;
    }
  }
  return finished;
}

std::vector<Trajectory> Batcher::stop() {
  std::vector<Trajectory> partial;
  for (Request& r : requests_) {
    r.trajectory.finish_reason = FinishReason::partial;
    partial.push_back(std::move(r.trajectory));
    kv_.close(r.kv);
  }
  requests_.clear();
  return partial;
}

}  // namespace paceline::engine
