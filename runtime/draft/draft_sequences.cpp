#include "runtime/draft/draft_sequences.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace paceline::draft {

DraftSequencesOptions checked(const DraftSequencesOptions& o) {
  if (o.max_requests < 1 || o.kv_block < 16 || o.kv_block % 16 != 0 || o.kv_blocks < 1 ||
      o.max_position < 1 || o.prefill_chunk < 0 || o.width < 1 || o.logit_rows < 1) {
    throw std::invalid_argument("options of a draft model's sequences");
  }
  return o;
}

DraftSequences::DraftSequences(kernels::Backend& backend, const DraftSequencesOptions& options)
    : options_(checked(options)), backend_(backend), kv_(options.kv_blocks, options.kv_block) {}

void DraftSequences::Pass::clear() {
  tokens.clear();
  segments.clear();
  members.clear();
  logit_rows.clear();
  logit_members.clear();
}

DraftText DraftSequences::text_of(const DraftStart& start) const {
  DraftText text;
  append(text, start.prompt);
  append(text, start.response);
  text.prompt = start.prompt.size();
  text.committed = text.tokens.size();
  text.noise = start.noise;
  text.sampling = start.sampling;
  return text;
}

void DraftSequences::append(DraftText& text, std::span<const TokenId> tokens) const {
  text.foreign |= !knows(tokens);
  text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
}

void DraftSequences::begin_round(std::size_t members) {
  if (suspended()) throw std::logic_error("a round of a draft model that is suspended");
  if (members > static_cast<std::size_t>(options_.max_requests))
    throw std::logic_error("a round of more requests than there is room for");
  ++round_;
  pass_.clear();
  order_.resize(members);
  std::iota(order_.begin(), order_.end(), 0);
}

/// Computes the members' texts. If no KV of a prompt is held, one of its siblings goes first.
void DraftSequences::catch_up(const Reader& read) {
  first_.clear();
  rest_.clear();
  for (int i = 0; i < static_cast<int>(order_.size()); ++i) {
    if (const kv::Handle* kv = kv_of(i)) (kv_.ready(*kv) ? first_ : rest_).push_back(i);
  }
  compute(first_, read);
  for (const int i : rest_) {
    if (!kv_.ready(*kv_of(i))) throw std::logic_error("nobody computes a prompt");
  }
  compute(rest_, read);
}

kernels::Segment& DraftSequences::add_segment(int member, std::int32_t rows) {
  const kv::Handle& kv = *kv_of(member);
  const std::int32_t first = kv_.length(kv);
  if (first + rows > kv_.reserved(kv)) throw std::logic_error("drafted past the room for it");
  pass_.members.push_back(member);
  return pass_.segments.emplace_back(
      kernels::Segment{.first_row = static_cast<int>(pass_.tokens.size()),
                       .rows = rows,
                       .first_position = first,
                       .blocks = kv_.table(kv).data()});
}

void DraftSequences::prepare_pass() {
  if (!kv_.has_work()) return;
  kv_.take_work(work_);
  if (!work_.moves.empty()) backend_.move_slots(kv_shape_, cache_->data(), work_.moves);
  if (!work_.copies.empty()) backend_.copy_blocks(kv_shape_, cache_->data(), work_.copies);
}

void DraftSequences::end_pass() {
  rows_ += pass_.tokens.size();
  for (std::size_t i = 0; i < pass_.segments.size(); ++i)
    kv_.advance(*kv_of(pass_.members[i]), pass_.segments[i].rows);
}

bool DraftSequences::knows(std::span<const TokenId> tokens) const {
  return std::ranges::all_of(tokens, [&](TokenId token) { return token >= 0 && token < vocab(); });
}

}  // namespace paceline::draft
