#include "runtime/engine/packed_prefill.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::engine {

PackedPrefill::PackedPrefill(const PackedPrefillLimits& limits, std::int32_t min_tokens,
                             std::vector<GivenResponse> responses)
    : limits_(limits),
      min_tokens_(min_tokens),
      responses_(std::move(responses)),
      kv_(limits.kv_blocks, limits.kv_block),
      pictures_(limits.picture_rows) {
  for (const GivenResponse& given : responses_) {
    if (given.prompt.empty() || given.response.empty())
      throw std::logic_error("a response of which nothing can be said");
    if (kv::Sequences::blocks_needed(positions(given), limits.kv_block) > limits.kv_blocks)
      throw std::logic_error("a response that the KV pool cannot hold");
  }
}

/// Reads the pictures of a response's prompt, for its siblings too.
void PackedPrefill::read_pictures(const GivenResponse& given) {
  if (shown_.prompt == given.id.prompt && shown_.pictures.size() == given.pictures.size()) return;
  shown_ = {.pictures = {}, .files = {}, .rows = {}, .prompt = given.id.prompt};
  if (given.pictures.empty()) return;
  shown_ = TextPictures::of(given.id.prompt, {given.pictures.begin(), given.pictures.end()},
                            limits_.files(given.id.prompt), limits_.picture_merge);
  identity_ = pictures_.identity(given.prompt, shown_);
}

/// Admits as many responses as there is room for.
void PackedPrefill::admit() {
  while (next_ < responses_.size() && std::ssize(active_) < limits_.max_batch) {
    const GivenResponse& given = responses_[next_];
    const bool first = next_ == 0 || responses_[next_ - 1].id.prompt != given.id.prompt;
    if (first) read_pictures(given);
    const std::optional<kv::Handle> handle = kv_.open(
        given.id.prompt, static_cast<std::int32_t>(given.prompt.size()),
        static_cast<std::int32_t>(positions(given)), shown_.empty() ? given.prompt : identity_);
    if (!handle) return;
    Active& added = active_.emplace_back(
        Active{.given = given, .pictures = shown_, .kv = *handle, .scores = {.id = given.id}});
    added.scores.first_routed = first ? 0 : static_cast<std::int32_t>(given.prompt.size());
    added.notes.note(given.logit_bias != nullptr ? *given.logit_bias : limits_.logit_bias);
    added.penalised = given.draw.value_or(limits_.draw).penalises();
    if (added.penalised) added.notes.note(given.prompt, false);

    added.scores.logprob.reserve(given.response.size());
    added.scores.sampling_logprob.reserve(given.response.size());
    ++next_;
  }
}

/// Notes a token of the response, for samples of later rows in this plan and in later plans.
void PackedPrefill::note_token(Active& r, std::int32_t index) {
  const auto given = [index](const AnsweredTurn& turn) {
    return static_cast<std::uint32_t>(index) >= turn.given &&
           static_cast<std::uint32_t>(index) < turn.end;
  };
  const bool sampled = std::none_of(r.given.turns.begin(), r.given.turns.end(), given);
  const TokenNote note{.token = r.given.response[index], .sampled = sampled ? 1 : 0, .bias = 0};
  step_.notes.push_back(note);
  r.notes.note(note);
}

void PackedPrefill::add_rows(Active& r, std::int32_t rows) {
  const auto prompt = static_cast<std::int32_t>(r.given.prompt.size());
  const std::int32_t length = kv_.length(r.kv);
  const auto first_row = static_cast<std::int32_t>(step_.tokens.size());
  step_.parts.push_back({first_row, rows, length, r.kv});
  StepSample of_part;  // the fields that all samples of the part have in common
  of_part.draw = step_.add_draw(r.given.draw);
  of_part.first_note = static_cast<std::int32_t>(step_.notes.size());
  if (length + rows >= prompt) {  // some of the part's rows have samples
    of_part.notes = static_cast<std::int32_t>(r.notes.all().size());
    step_.notes.insert(step_.notes.end(), r.notes.all().begin(), r.notes.all().end());
  }
  of_part.first_since = of_part.first_note + of_part.notes;
  for (std::int32_t row = 0; row < rows; ++row) {
    const std::int32_t position = length + row;
    step_.tokens.push_back(position < prompt ? r.given.prompt[position]
                                             : r.given.response[position - prompt]);
    const std::int32_t index = position + 1 - prompt;  // index of the token that follows
    if (index < 0) continue;
    StepSample& sample = step_.samples.emplace_back(of_part);
    sample.row = first_row + row;
    sample.index = index;
    if (index < min_tokens_) step_.ban_stops(sample, r.given.banned);
    sample.given = r.given.response[index];
    if (!r.penalised) continue;
    note_token(r, index);  // the token is before the samples of later rows
    ++of_part.since;
  }
  if (limits_.routing) {
    if (r.routing.empty()) r.routing = limits_.routing(r.given.id);
    const std::size_t width = r.routing.size() / static_cast<std::size_t>(positions(r.given));
    const auto first = r.routing.begin() + static_cast<std::ptrdiff_t>(length * width);
    routing_.insert(routing_.end(), first, first + static_cast<std::ptrdiff_t>(rows * width));
  }
  r.planned = rows;
}

const Step& PackedPrefill::plan() {
  admit();
  step_.clear();
  routing_.clear();
  pictures_.begin();
  bool shown = false;  // some text of the step has pictures
  std::int32_t budget = limits_.rows;
  for (Active& r : active_) {
    if (budget == 0) break;
    if (!kv_.ready(r.kv)) continue;
    const auto left = static_cast<std::int32_t>(positions(r.given)) - kv_.length(r.kv);
    const std::int32_t rows =
        pictures_.add(r.pictures, kv_.length(r.kv), std::min(left, budget), step_);
    if (rows == 0) continue;
    add_rows(r, rows);
    budget -= rows;
    shown = shown || !r.pictures.empty();
  }
  auto part = step_.parts.begin();
  for (const Active& r : active_) {
    if (shown && r.planned > 0) add_rotary(step_, *part++, r.pictures.rows);
  }
  kv_.take_work(step_.kv);
  return step_;
}

std::vector<ResponseScores> PackedPrefill::commit(const StepResult& result) {
  const auto width = static_cast<std::size_t>(limits_.logprobs);
  std::span<const kernels::Ranked> top = result.top;
  if (top.size() < result.sampled.size() * width)
    throw std::logic_error("probable tokens of other positions than were scored");
  std::vector<ResponseScores> done;
  auto next = result.sampled.begin();
  for (auto it = active_.begin(); it != active_.end();) {
    const std::int32_t rows = std::exchange(it->planned, 0);
    if (rows > 0) kv_.advance(it->kv, rows);
    const std::int32_t before_first = static_cast<std::int32_t>(it->given.prompt.size()) - 1;
    ResponseScores& scores = it->scores;
    while (before_first + std::ssize(scores.logprob) < kv_.length(it->kv)) {
      scores.logprob.push_back(next->logprob);
      scores.sampling_logprob.push_back(next->sampling_logprob);
      for (const kernels::Ranked& token : top.first(width)) {
        scores.top_ids.push_back(token.token);
        scores.top_logprob.push_back(token.score);
      }
      top = top.subspan(width);
      ++next;
    }
    if (kv_.length(it->kv) < positions(it->given)) {
      ++it;
      continue;
    }
    if (limits_.keep_routing) scores.routed_places = kv_.places(it->kv, scores.first_routed);
    kv_.close(it->kv);
    done.push_back(std::move(scores));
    it = active_.erase(it);
  }
  return done;
}

}  // namespace paceline::engine
