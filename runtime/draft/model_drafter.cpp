#include "runtime/draft/model_drafter.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace paceline::draft {
namespace {

ModelDrafterOptions checked(const ModelDrafterOptions& o) {
  if (o.vocab < 1 || o.max_requests < 1 || o.kv_block < 16 || o.kv_block % 16 != 0 ||
      o.kv_blocks < 1 || o.max_position < 1 || o.max_length < 1 || o.paths < 1 ||
      o.paths >= kernels::kMaxRanked || o.prefill_chunk < 0) {
    throw std::invalid_argument("options of a model drafter");
  }
  return o;
}

}  // namespace

ModelDrafter::ModelDrafter(kernels::Backend& backend, const ModelConfig& config,
                           const WeightSource& source, TensorParallelGroup& group, DType compute,
                           const SamplingParams& sampling, std::vector<TokenId> stops,
                           const ModelDrafterOptions& options)
    : options_(checked(options)),
      sampling_(sampling),
      stops_(std::move(stops)),
      backend_(backend),
      decoder_(backend, config, source, group, compute,
               options.max_requests + options.prefill_chunk, options.max_requests,
               options.max_position),
      kv_shape_(decoder_.kv_shape(options.kv_block)),
      pool_(options.kv_blocks),
      cache_(backend.allocate(kv_shape_.block_bytes() * options.kv_blocks)) {
  if (options_.noise == DraftNoise::greedy) sampling_.temperature = 0;
}

ModelDrafter::Request& ModelDrafter::request(RequestId id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) throw std::logic_error("draft for a request that was not started");
  return at->second;
}

void ModelDrafter::append(Request& r, std::span<const TokenId> tokens) const {
  const int vocab = decoder_.config().vocab;
  for (const TokenId token : tokens) r.unknown_token |= token < 0 || token >= vocab;
  r.text.insert(r.text.end(), tokens.begin(), tokens.end());
}

void ModelDrafter::start(const DraftStart& start, double /*now*/) {
  const auto [at, added] = requests_.try_emplace(start.id);
  if (!added) throw std::logic_error("a request was started twice");
  Request& r = at->second;
  append(r, start.prompt);
  append(r, start.response);
  r.prompt_size = start.prompt.size();
  r.noise = start.noise;
  // Any other key gives other noise; the stream stays the request's own.
  if (options_.noise == DraftNoise::independent) r.noise.key ^= 0x9E3779B97F4A7C15U;
}

void ModelDrafter::commit(RequestId id, std::span<const TokenId> tokens, double /*now*/) {
  Request& r = request(id);
  append(r, tokens);
  const auto kept = static_cast<std::size_t>(
      std::mismatch(r.drafted.begin(), r.drafted.end(), tokens.begin(), tokens.end()).first -
      r.drafted.begin());
  r.computed += kept;
  if (kept < tokens.size()) {  // the rest of the chain follows on what was not said
    r.drafted.clear();
  } else {
    r.drafted.erase(r.drafted.begin(), r.drafted.begin() + static_cast<std::ptrdiff_t>(kept));
  }
}

void ModelDrafter::finish(RequestId id, double /*now*/) {
  release_kv(request(id));
  requests_.erase(id);
}

// Beyond what every step leaves: the last token, and the one before it when the draft was accepted
// to its end.
int ModelDrafter::lag(RequestId id) const {
  const Request& r = requests_.at(id);
  return std::max(0, static_cast<int>(r.text.size() - r.computed) - 2);
}

void ModelDrafter::release_kv(Request& r) {
  for (const std::int32_t block : r.blocks) pool_.release(block);
  r.blocks.clear();
  r.drafted.clear();
  r.computed = 0;
}

bool ModelDrafter::is_stop(TokenId token) const {
  return std::find(stops_.begin(), stops_.end(), token) != stops_.end();
}

void ModelDrafter::propose(std::span<DraftSlot> batch, double /*now*/) {
  const auto part = static_cast<std::size_t>(options_.max_requests);
  for (std::size_t first = 0; first < batch.size(); first += part) {
    propose_together(batch.subspan(first, std::min(part, batch.size() - first)));
  }
}

void ModelDrafter::propose_together(std::span<DraftSlot> batch) {
  ++round_;
  jobs_.clear();
  for (DraftSlot& slot : batch) {
    Request& r = request(slot.id);
    slot.count = 0;
    const int length = longest(slot, r);
    if (length < 1) continue;
    jobs_.push_back({&slot, &r, length, std::min(slot.limits.paths, options_.paths), {}});
  }
  reserve();
  catch_up();
  extend_paths();
  for (const Job& job : jobs_) write(job);
}

/// The last token of a chain needs no position: no pass is run for it.
int ModelDrafter::longest(const DraftSlot& slot, const Request& r) const {
  if (slot.limits.paths < 1 || r.unknown_token) return 0;
  const auto size = static_cast<std::int64_t>(r.text.size());
  const std::int64_t response = size - static_cast<std::int64_t>(r.prompt_size);
  const std::int64_t by_text =
      std::min(sampling_.max_tokens - response, options_.max_position - size + 1);
  return static_cast<int>(
      std::min<std::int64_t>(by_text, std::min({slot.limits.max_tokens, slot.limits.max_length,
                                                slot.output.capacity(), options_.max_length})));
}

/// Gives each job the blocks of its text and path, most recently drafted first, so that requests
/// that compete for a small pool do not take turns in evicting one another. Jobs that do not fit
/// beside those before them are shortened or left out.
void ModelDrafter::reserve() {
  std::stable_sort(jobs_.begin(), jobs_.end(),
                   [](const Job& a, const Job& b) { return a.request->used > b.request->used; });
  std::vector<Job> served;
  std::int64_t taken = 0;  // blocks of the jobs served
  for (Job& job : jobs_) {
    Request& r = *job.request;
    if (r.used == round_) throw std::logic_error("a request is in a batch of drafts twice");
    const auto size = static_cast<std::int64_t>(r.text.size());
    const std::int64_t positions = (pool_.size() - taken) * options_.kv_block;
    job.length = static_cast<int>(std::min<std::int64_t>(job.length, positions - size + 1));
    if (job.length < 1) continue;
    r.used = round_;
    const auto blocks =
        static_cast<std::size_t>(kv::blocks_for(size + job.length - 1, options_.kv_block));
    while (r.blocks.size() < blocks) {
      if (pool_.available() == 0) evict_oldest();
      r.blocks.push_back(pool_.acquire());
    }
    taken += static_cast<std::int64_t>(r.blocks.size());
    served.push_back(std::move(job));
  }
  jobs_.swap(served);
}

void ModelDrafter::evict_oldest() {
  Request* oldest = nullptr;
  for (auto& [id, r] : requests_) {
    if (r.blocks.empty() || r.used == round_) continue;
    if (oldest == nullptr || r.used < oldest->used) oldest = &r;
  }
  release_kv(*oldest);  // there is one: reserve() promises no more than these hold
}

void ModelDrafter::add_rows(const Request& r, std::span<const TokenId> tokens,
                            std::size_t position) {
  segments_.push_back({static_cast<int>(tokens_.size()), static_cast<int>(tokens.size()),
                       static_cast<int>(position), r.blocks.data()});
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

/// Computes what the KV lacks of each text, and the first level of each path.
void ModelDrafter::catch_up() {
  for (Job& job : jobs_) {
    Request& r = *job.request;
    r.drafted.clear();
    r.computed = std::min(r.computed, r.text.size() - 1);  // the last row gives the logits
  }
  const auto most = static_cast<std::size_t>(options_.max_requests + options_.prefill_chunk);
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    while (job != jobs_.end() && tokens_.size() < most) {
      Request& r = *job->request;
      const std::size_t rows = std::min(most - tokens_.size(), r.text.size() - r.computed);
      add_rows(r, std::span(r.text).subspan(r.computed, rows), r.computed);
      r.computed += rows;
      if (r.computed < r.text.size()) break;
      ranked_jobs_.push_back(&*job);
      logit_rows_.push_back(static_cast<std::int32_t>(tokens_.size()) - 1);
      ++job;
    }
    run_pass();
  }
}

void ModelDrafter::extend_paths() {
  for (;;) {
    for (Job& job : jobs_) {
      const TokenId best = job.level(job.levels() - 1)[0].token;
      if (job.levels() == job.length || is_stop(best)) continue;
      Request& r = *job.request;
      ranked_jobs_.push_back(&job);
      logit_rows_.push_back(static_cast<std::int32_t>(tokens_.size()));
      add_rows(r, {&best, 1}, r.text.size() + r.drafted.size());
      r.drafted.push_back(best);
    }
    if (tokens_.empty()) return;
    run_pass();
  }
}

/// Runs the rows put together and appends a level to each job that has a logit row.
void ModelDrafter::run_pass() {
  const int vocab = decoder_.config().vocab;
  const float* logits =
      decoder_.forward(tokens_, segments_, logit_rows_, kv_shape_, cache_->data());
  rows_ += tokens_.size();
  int count = 0;
  for (const Job* job : ranked_jobs_) {
    const Request& r = *job->request;
    const auto index = static_cast<std::int32_t>(r.text.size() - r.prompt_size) + job->levels();
    const bool ban_stops = index < sampling_.min_tokens;
    sample_rows_.push_back(
        {r.noise, index, sampling_.temperature, sampling_.top_k, sampling_.top_p, sampling_.min_p,
         ban_stops ? std::span<const TokenId>(stops_) : std::span<const TokenId>()});
    count = std::max(count, job->paths + 1);
  }
  ranked_.resize(ranked_jobs_.size() * count);
  if (count > 0) {
    backend_.rank(logits, vocab, std::min(vocab, options_.vocab), sample_rows_, count, ranked_);
  }
  for (std::size_t i = 0; i < ranked_jobs_.size(); ++i) {
    Job& job = *ranked_jobs_[i];
    const auto best = ranked_.begin() + static_cast<std::ptrdiff_t>(i) * count;
    job.ranked.insert(job.ranked.end(), best, best + job.paths + 1);
  }
  tokens_.clear();
  segments_.clear();
  logit_rows_.clear();
  ranked_jobs_.clear();
  sample_rows_.clear();
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
  const int room = std::min(slot.limits.max_tokens, slot.output.capacity());
  for (const Leaf& leaf : leaves) {
    if (slot.count == room) break;
    slot.output.set(slot.count++, leaf.token, leaf.parent, leaf.score);
  }
}

}  // namespace paceline::draft
