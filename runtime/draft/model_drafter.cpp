#include "runtime/draft/model_drafter.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace paceline::draft {
namespace {

ModelDrafterOptions checked(const ModelDrafterOptions& o) {
  if (o.vocab < 1 || o.max_length < 1 || o.paths < 1 || o.paths >= kernels::kMaxRanked)
    throw std::invalid_argument("options of a model drafter");
  return o;
}

}  // namespace

ModelDrafter::ModelDrafter(kernels::Backend& backend, model::LoadWeights load,
                           TensorParallelGroup& group, const SamplingParams& sampling,
                           std::vector<TokenId> stops, const ModelDrafterOptions& options)
    : options_(checked(options)),
      sampling_(sampling),
      stops_(std::move(stops)),
      backend_(backend),
      sequences_(backend, std::move(load), group, options) {
  if (options_.noise == DraftNoise::greedy) sampling_.temperature = 0;
  warm_up();
}

/// Drafts once for a made-up request. What first passes cost (memory touched, launches recorded) is
/// paid here: policies measure drafts, and a first one that takes ten times as long as any other
/// looks like a drafter that never pays.
void ModelDrafter::warm_up() {
  constexpr RequestId kNobody{~0U, ~0U};
  // A pass of the largest size would be what a rank that comes to draft in mid-run does for
  // longest: 0.4 s of 217 MB of weights on a core, 28 ms with these (bench_scale).
  constexpr std::int64_t kRows = 16;
  const std::int64_t positions = std::min<std::int64_t>(
      options_.max_position, std::int64_t{options_.kv_blocks - 1} * options_.kv_block);
  const std::int64_t rows = std::min<std::int64_t>(
      {kRows, options_.prefill_chunk + options_.max_requests, positions - 1});
  if (rows < 1) return;
  const std::uint64_t before = sequences_.rows();
  start({kNobody, std::vector<TokenId>(static_cast<std::size_t>(rows), 0), {}, {}}, 0);
  TokenId tokens[2];
  std::int32_t parents[2];
  float scores[2];
  DraftSlot slot{kNobody, {2, 2, 1}, {tokens, parents, scores}};
  propose({&slot, 1}, 0, nullptr);
  finish(kNobody, 0);
  sequences_.drop_kv();  // its prompt's too
  warm_up_rows_ += sequences_.rows() - before;
}

bool ModelDrafter::resume() {
  if (!sequences_.suspended()) return true;
  if (!sequences_.resume()) return false;
  warm_up();
  return true;
}

bool ModelDrafter::is_stop(TokenId token) const {
  return std::find(stops_.begin(), stops_.end(), token) != stops_.end();
}

void ModelDrafter::propose(std::span<DraftSlot> batch, double /*now*/, Levels* levels) {
  const auto part = static_cast<std::size_t>(options_.max_requests);
  for (std::size_t first = 0; first < batch.size(); first += part) {
    propose_together(batch.subspan(first, std::min(part, batch.size() - first)), levels);
  }
}

void ModelDrafter::propose_together(std::span<DraftSlot> batch, Levels* levels) {
  jobs_.clear();
  members_.clear();
  for (DraftSlot& slot : batch) {
    const DraftText& text = sequences_.text(slot.id);
    slot.count = 0;
    const int length = longest(slot, text);
    if (length < 1) continue;
    const std::size_t first = text.committed - text.prompt + slot.assumed.size();
    const int paths = std::min(slot.limits.paths, options_.paths);
    jobs_.push_back({&slot, &text, static_cast<std::int32_t>(first), length, paths, {}});
    // No pass is run for the last token of a chain.
    members_.push_back({slot.id, slot.assumed, length - 1});
  }
  if (sequences_.suspended()) return;
  sequences_.begin(members_);
  for (std::size_t i = 0; i < jobs_.size(); ++i) jobs_[i].length = members_[i].ahead + 1;
  const DraftSequences::Reader rank = [this](std::span<const int> jobs, const float* logits) {
    this->rank(jobs, logits);
  };
  sequences_.catch_up(rank);
  int level = 1;
  for (find_next(); !next_.empty(); find_next()) {
    if (levels != nullptr) {
      for (const Job& job : jobs_) write(job);
      if (!levels->go_on(level++, batch)) return;
    }
    sequences_.extend(next_, rank);
  }
  for (const Job& job : jobs_) write(job);
}

/// The last token of a chain needs no position.
int ModelDrafter::longest(const DraftSlot& slot, const DraftText& text) const {
  if (slot.limits.paths < 1 || text.foreign || !sequences_.knows(slot.assumed)) return 0;
  if (std::any_of(slot.assumed.begin(), slot.assumed.end(),
                  [&](TokenId token) { return is_stop(token); })) {
    return 0;
  }
  const auto size = static_cast<std::int64_t>(text.committed + slot.assumed.size());
  const std::int64_t response = size - static_cast<std::int64_t>(text.prompt);
  const std::int64_t by_text =
      std::min(sampling_.max_tokens - response, options_.max_position - size + 1);
  return static_cast<int>(
      std::min<std::int64_t>(by_text, std::min({slot.limits.max_tokens, slot.limits.max_length,
                                                slot.output.capacity(), options_.max_length})));
}

/// The best tokens of the last level, of the paths that go on.
void ModelDrafter::find_next() {
  next_.clear();
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    if (job.levels() == job.length) continue;
    const TokenId best = job.level(job.levels() - 1)[0].token;
    if (!is_stop(best)) next_.push_back({static_cast<int>(i), best});
  }
}

/// Appends a level to each of these jobs. logits: [jobs].
void ModelDrafter::rank(std::span<const int> jobs, const float* logits) {
  const int vocab = sequences_.vocab();
  int count = 0;
  sample_rows_.clear();
  for (const int i : jobs) {
    const Job& job = jobs_[i];
    const std::int32_t index = job.first + job.levels();
    const bool ban_stops = index < sampling_.min_tokens;
    NoiseKey noise = job.text->noise;
    // Any other key gives other noise; the stream stays the request's own.
    if (options_.noise == DraftNoise::independent) noise.key ^= 0x9E3779B97F4A7C15U;
    sample_rows_.push_back(
        {noise, index, sampling_.temperature, sampling_.top_k, sampling_.top_p, sampling_.min_p,
         ban_stops ? std::span<const TokenId>(stops_) : std::span<const TokenId>()});
    count = std::max(count, job.paths + 1);
  }
  ranked_.resize(jobs.size() * count);
  backend_.rank(logits, vocab, std::min(vocab, options_.vocab), sample_rows_, count, ranked_);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs_[jobs[i]];
    const auto best = ranked_.begin() + static_cast<std::ptrdiff_t>(i) * count;
    job.ranked.insert(job.ranked.end(), best, best + job.paths + 1);
  }
}

void ModelDrafter::write(const Job& job) {
  struct Leaf {
    TokenId token;
    std::int32_t parent;
    float score;
  };
  std::vector<Leaf> leaves;
  DraftSlot& slot = *job.slot;
  double path = 1;
  for (int i = 0; i < job.levels(); ++i) {
    const std::span<const kernels::Ranked> level = job.level(i);
    double sum = 0;
    for (const kernels::Ranked& r : level) {
      sum += std::exp(static_cast<double>(r.score) - level[0].score);
    }
    path /= sum;  // times the best token's share, exp(0) / sum
    slot.output.set(i, level[0].token, i - 1, static_cast<float>(path));
    for (int j = 1; j < job.paths && level[j].token >= 0; ++j) {
      const double share = std::exp(static_cast<double>(level[j].score) - level[0].score);
      leaves.push_back({level[j].token, i - 1, static_cast<float>(path * share)});
    }
  }
  slot.count = job.levels();
  std::stable_sort(leaves.begin(), leaves.end(),
                   [](const Leaf& a, const Leaf& b) { return a.score > b.score; });
  const int most = std::min(slot.limits.max_tokens, slot.output.capacity());
  for (const Leaf& leaf : leaves) {
    if (slot.count == most) break;
    slot.output.set(slot.count++, leaf.token, leaf.parent, leaf.score);
  }
}

}  // namespace paceline::draft
