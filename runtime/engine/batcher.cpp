#include "runtime/engine/batcher.hpp"

#include <algorithm>
#include <stdexcept>

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
  if (kv_.owners() == 1) return owner < 0 ? requests_.begin() : requests_.end();
  return std::ranges::find_if(requests_, [&](const Request& r) { return this->owner(r) > owner; });
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
                                 Request{.kv = *handle,
                                         .until = request.until,
                                         .turn_end = turn_end,
                                         .arrival = {},
                                         .noise = request.noise,
                                         .prompt = std::move(request.prompt),
                                         .trajectory = std::move(request.trajectory),
                                         .version = request.version,
                                         .sampling = std::move(request.sampling),
                                         .pictures = std::move(pictures),
                                         .banned = {},
                                         .matcher = StopMatcher(sampling_.stop_strings)});
  if (r.sampling.stops) {
    if (!r.sampling.stops->strings.empty() && text_ == nullptr)
      throw std::logic_error("stop strings need the text of tokens");
    r.matcher = StopMatcher(r.sampling.stops->strings);
    if (sampling_.min_tokens > 0) r.banned = banned_early(sampling_, r.sampling.stops->ids);
  }
  note_text(r);
  r.last = (r.trajectory.tokens.empty() ? r.prompt : r.trajectory.tokens).back();
  r.usual = !r.sampling.draw && !r.sampling.stops && !r.penalised && r.notes.empty();
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
  const auto it =
      std::ranges::find_if(requests_, [&](const Request& r) { return r.trajectory.id == id; });
  if (it == requests_.end()) throw std::logic_error("a request that does not run");
  return *it;
}

bool Batcher::runs(RequestId id) const {
  return std::ranges::any_of(requests_, [&](const Request& r) { return r.trajectory.id == id; });
}

std::vector<RequestLength> Batcher::running() const {
  std::vector<RequestLength> running;
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
    if (std::ranges::any_of(table,
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
  requests_.erase(requests_.begin() + (&r - requests_.data()));
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

/// Takes a request out of the batch, to be admitted again. Returns the request after it.
Batcher::Requests::iterator Batcher::park(Requests::iterator request) {
  kv_.close(request->kv);
  parked_.insert(parked_.begin(), take(*request));
  return requests_.erase(request);
}

/// Gives every request room for its part of the next step.
void Batcher::settle() {
  if (settled_) return;
  for (Request& r : requests_) go_on(r);
  for (std::int32_t o = 0; o < kv_.owners(); ++o) unstick(o);
  // Leases still to be renewed wait for parcels to be released.
  settled_ = std::ranges::none_of(requests_, [](const Request& r) { return r.renewed != 0; });
  if (limits_.growth == 0) return;
  for (std::int32_t o = 0; o < kv_.owners(); ++o) grow_all(o);
}

/// If all requests of an owner rest and wait for room that the others hold, parks the last ones
/// until one can go on.
void Batcher::unstick(std::int32_t owner) {
  const auto first = end_of(owner - 1);
  auto end = end_of(owner);
  const auto stuck = [this](const Request& r) { return rests(r) && r.renewed != 0; };
  while (std::distance(first, end) > 1 && std::all_of(first, end, stuck)) {
    end = park(std::prev(end));
    for (auto it = first; it != end; ++it) go_on(*it);
  }
}

/// Makes room for all requests of an owner. If a request lacks room, parks the last request
/// that expects no KV: arriving KV is being written to the blocks of its request.
void Batcher::grow_all(std::int32_t owner) {
  auto it = end_of(owner - 1);
  for (auto left = std::distance(it, end_of(owner)); left > 0; --left) {
    if (grow(*it)) {
      ++it;
      continue;
    }
    auto last = it + (left - 1);
    while (last != it && last->arrival.end > 0) --last;
    const bool itself = last == it;
    last = park(last);
    if (itself) it = last;
  }
}

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
