// A batch's steps: the rows of the next step, and the tokens that it brings. batcher.cpp has the
// rest of the class: requests that come and go, and their room.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/engine/batcher.hpp"

namespace paceline::engine {

/// Positions left to compute, up to KV that arrives or the end of the text. At the end of the lease
/// the last position is left out, so that no further token is sampled.
std::int32_t Batcher::remaining(const Request& r) const {
  const std::int32_t length = kv_.length(r.kv);
  if (length < r.arrival.end) return std::max(length, r.arrival.first) - length;
  return r.text() - (rests(r) ? 1 : 0) - length;
}

bool Batcher::decodes(const Request& r) const { return kv_.length(r.kv) + 1 == r.text(); }

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
  of_part_.first_note = static_cast<std::int32_t>(step_.notes.size());
  if (r.usual) return;
  of_part_.draw = step_.add_draw(r.sampling.draw);
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
  const std::vector<TokenId>& stops = !r.usual && r.sampling.stops ? r.sampling.stops->ids : stops_;
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

void Batcher::add_rows(Request& r, std::int32_t rows) {
  const std::int32_t first = kv_.length(r.kv);
  const std::int32_t end = first + rows;
  const std::int32_t prompt = r.prompt_length();
  const StepPart& part = add_part(r, rows);
  if (rows == 1 && end == r.text()) {  // decodes: its tokens need not be looked up
    step_.tokens.push_back(r.last);
    draft_index_.push_back(-1);
    note_part(r);
    add_sample(r, part.first_row, 0);
    return;
  }
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
    step_.tokens.push_back(token < 0 ? r.last : draft.tokens[token]);
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
  r.last = sampled.token;
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
  if (length >= r.turn_end) return FinishReason::length;
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

}  // namespace paceline::engine
