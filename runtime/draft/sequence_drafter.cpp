#include "runtime/draft/sequence_drafter.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::draft {
namespace {

SequenceDrafterOptions checked_drafter(const SequenceDrafterOptions& o) {
  if (o.vocab < 1 || o.max_length < 1 || o.paths < 1 || o.paths >= kernels::kMaxRanked)
    throw std::invalid_argument("options of a model drafter");
  return o;
}

}  // namespace

SequenceDrafter::SequenceDrafter(kernels::Backend& backend,
                                 std::unique_ptr<DraftSequences> sequences,
                                 const SamplingParams& sampling, std::vector<TokenId> stops,
                                 const SequenceDrafterOptions& options)
    : options_(checked_drafter(options)),
      sampling_(sampling),
      stops_(std::move(stops)),
      banned_early_(banned_early(sampling, stops_)),
      backend_(backend),
      sequences_(std::move(sequences)) {}

/// Drafts once for a made-up request, to pay the costs of first passes here (memory touched, CUDA
/// graphs captured). Policies measure drafts: a first draft that takes ten times as long as any
/// other would look like a drafter that never pays.
void SequenceDrafter::warm_up() {
  constexpr RequestId kNobody{~0U, ~0U};
  // A pass of the largest size would hold up a rank that begins to draft during a run: 0.4 s with
  // 217 MB of weights on a core, against 28 ms with this number of rows (bench_scale).
  constexpr std::int64_t kRows = 16;
  const std::int64_t positions = std::min<std::int64_t>(
      options_.max_position, std::int64_t{options_.kv_blocks - 1} * options_.kv_block);
  const std::int64_t rows = std::min<std::int64_t>(
      {kRows, options_.prefill_chunk + options_.max_requests, positions - 1});
  if (rows < 1) return;
  const std::uint64_t before = sequences_->rows();
  start({kNobody, std::vector<TokenId>(static_cast<std::size_t>(rows), 0), {}, {}}, 0);
  observe(kNobody, 0, std::vector<std::byte>(static_cast<std::size_t>(rows - 1) * feature_bytes()));
  TokenId tokens[2];
  std::int32_t parents[2];
  float scores[2];
  DraftSlot slot{kNobody, {2, 2, 1}, {tokens, parents, scores}};
  propose({&slot, 1}, 0, nullptr);
  finish(kNobody, 0);
  sequences_->drop_kv();  // the prompt's KV too
  warm_up_rows_ += sequences_->rows() - before;
}

bool SequenceDrafter::resume() {
  if (!sequences_->suspended()) return true;
  if (!sequences_->resume()) return false;
  warm_up();
  return true;
}

bool SequenceDrafter::is_stop(const DraftText& text, TokenId token) const {
  const std::vector<TokenId>& ids = stops(text);
  return std::ranges::find(ids, token) != ids.end();
}

void SequenceDrafter::propose(std::span<DraftSlot> batch, double /*now*/, Levels* levels) {
  const auto part = static_cast<std::size_t>(options_.max_requests);
  for (std::size_t first = 0; first < batch.size(); first += part) {
    propose_together(batch.subspan(first, std::min(part, batch.size() - first)), levels);
  }
}

SequenceDrafter::Started SequenceDrafter::begin(DraftSlot& slot) const {
  const DraftText& text = sequences_->text(slot.id);
  slot.count = 0;
  slot.calls = 0;
  const std::size_t first = text.committed - text.prompt + slot.assumed.size();
  return {&slot, &text, static_cast<std::int32_t>(first), longest(slot, text),
          std::min(slot.limits.paths, options_.paths)};
}

void SequenceDrafter::grow(Levels* levels) {
  const DraftSequences::Reader read = [this](std::span<const int> jobs, const float* logits) {
    rank(jobs, logits);
  };
  sequences_->catch_up(read);
  if (sequences_->at_once()) return;
  int level = 1;
  for (find_next(); !next_.empty(); find_next()) {
    if (levels != nullptr) judge(*levels, level++);
    if (next_.empty()) break;
    sequences_->extend(next_, read);
  }
}

/// Computes the limit. The last token of a chain needs no position.
int SequenceDrafter::longest(const DraftSlot& slot, const DraftText& text) const {
  if (slot.limits.paths < 1 || text.foreign || !sequences_->knows(slot.assumed)) return 0;
  if (std::ranges::any_of(slot.assumed, [&](TokenId token) { return is_stop(text, token); })) {
    return 0;
  }
  const auto size = static_cast<std::int64_t>(text.committed + slot.assumed.size());
  const std::int64_t response = size - static_cast<std::int64_t>(text.prompt);
  const std::int64_t by_text =
      std::min(text.sampling.max_tokens.value_or(sampling_.max_tokens) - response,
               options_.max_position - size + 1);
  return static_cast<int>(
      std::min<std::int64_t>(by_text, std::min({slot.limits.max_tokens, slot.limits.max_length,
                                                slot.output.capacity(), options_.max_length})));
}

kernels::SampleRow SequenceDrafter::sample_row(const DraftText& text, std::int32_t index) const {
  const TokenDraw draw = text.sampling.draw.value_or(sampling_.draw());
  return {text.noise,
          index,
          options_.noise == DraftNoise::greedy ? 0 : draw.temperature,
          draw.top_k,
          draw.top_p,
          draw.min_p,
          index < sampling_.min_tokens ? banned_early_ : sampling_.masked};
}

void SequenceDrafter::rank_rows(const float* logits, int count) {
  const int vocab = sequences_->vocab();
  ranked_.resize(sample_rows_.size() * count);
  try {
    backend_.rank(logits, vocab, std::min(vocab, options_.vocab), sample_rows_, count, ranked_);
  } catch (const kernels::UnusableLogits& bad) {
    throw bad.of_weights(options_.weights);
  }
}

}  // namespace paceline::draft
