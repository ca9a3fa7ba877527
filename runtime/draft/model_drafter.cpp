#include "runtime/draft/model_drafter.hpp"

#include <algorithm>
#include <cmath>
#include <set>
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
  warm_up();
}

/// Drafts once for a made-up request. What first passes cost (memory touched, launches recorded) is
/// paid here: policies measure drafts, and a first one that takes ten times as long as any other
/// looks like a drafter that never pays.
void ModelDrafter::warm_up() {
  constexpr RequestId kNobody{~0U, ~0U};
  const std::int64_t positions = std::min<std::int64_t>(
      options_.max_position, std::int64_t{options_.kv_blocks} * options_.kv_block);
  const std::int64_t rows =
      std::min<std::int64_t>(options_.prefill_chunk + options_.max_requests, positions - 1);
  if (rows < 1) return;
  start({kNobody, std::vector<TokenId>(static_cast<std::size_t>(rows), 0), {}, {}}, 0);
  TokenId tokens[2];
  std::int32_t parents[2];
  float scores[2];
  DraftSlot slot{kNobody, {2, 2, 1}, {tokens, parents, scores}};
  propose({&slot, 1}, 0);
  release_kv(request(kNobody));
  requests_.clear();
  rows_ = 0;
}

ModelDrafter::Request& ModelDrafter::request(RequestId id) {
  const auto at = requests_.find(id);
  if (at == requests_.end() || at->second.ended)
    throw std::logic_error("draft for a request that was not started");
  return at->second;
}

void ModelDrafter::append(Request& r, std::span<const TokenId> tokens) const {
  const int vocab = decoder_.config().vocab;
  for (const TokenId token : tokens) r.unknown_token |= token < 0 || token >= vocab;
  r.text.insert(r.text.end(), tokens.begin(), tokens.end());
}

void ModelDrafter::start(const DraftStart& start, double /*now*/) {
  const auto [at, added] = requests_.try_emplace(start.id);
  Request& r = at->second;
  if (!added && !r.ended) throw std::logic_error("a request was started twice");
  release_kv(r);
  r = {};
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
  Request& r = request(id);
  r.ended = true;
  const Request* other = sibling(id);
  if (r.computed >= r.prompt_size && (other == nullptr || other->computed < r.prompt_size)) {
    const auto kept = static_cast<std::size_t>(
        kv::blocks_for(static_cast<std::int64_t>(r.prompt_size), options_.kv_block));
    for (; r.blocks.size() > kept; r.blocks.pop_back()) pool_.release(r.blocks.back());
    r.computed = r.prompt_size;
    return;
  }
  release_kv(r);
  requests_.erase(id);
}

/// Of the other requests with this prompt, the one that holds most of its KV; null: none holds any.
const ModelDrafter::Request* ModelDrafter::sibling(RequestId id) const {
  const Request* best = nullptr;
  for (auto at = requests_.lower_bound({id.prompt, 0});
       at != requests_.end() && at->first.prompt == id.prompt; ++at) {
    if (at->first == id || at->second.computed == 0) continue;
    if (best == nullptr || at->second.computed > best->computed) best = &at->second;
  }
  return best;
}

/// Takes over what a sibling holds of the prompt; false when none holds any.
bool ModelDrafter::copy_prompt(RequestId id, Request& r) {
  const Request* from = sibling(id);
  if (from == nullptr) return false;
  r.computed = std::min(from->computed, r.prompt_size);
  std::vector<kernels::Backend::BlockCopy> copies;
  for (std::int32_t i = 0;
       i < kv::blocks_for(static_cast<std::int64_t>(r.computed), options_.kv_block); ++i) {
    copies.push_back({from->blocks[i], r.blocks[i]});
  }
  backend_.copy_blocks(kv_shape_, cache_->data(), copies);
  r.computed = std::min(r.computed, r.text.size() - 1);  // the last row gives the logits
  return true;
}

// Beyond what every step leaves: the last token, and the one before it when the draft was accepted
// to its end.
int ModelDrafter::lag(RequestId id) const {
  const Request& r = requests_.at(id);
  std::size_t held = r.computed;
  if (held == 0) {
    if (const Request* from = sibling(id)) held = std::min(from->computed, r.prompt_size);
  }
  return std::max(0, static_cast<int>(r.text.size() - held) - 2);
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
  auto oldest = requests_.end();
  for (auto at = requests_.begin(); at != requests_.end(); ++at) {
    const Request& r = at->second;
    if (r.blocks.empty() || r.used == round_) continue;
    if (oldest == requests_.end() || r.used < oldest->second.used) oldest = at;
  }
  release_kv(oldest->second);  // there is one: reserve() promises no more than these hold
  if (oldest->second.ended) requests_.erase(oldest);
}

void ModelDrafter::add_rows(const Request& r, std::span<const TokenId> tokens,
                            std::size_t position) {
  segments_.push_back({static_cast<int>(tokens_.size()), static_cast<int>(tokens.size()),
                       static_cast<int>(position), r.blocks.data()});
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

/// Computes what the KV lacks of each text, and the first level of each path. Where several
/// siblings hold nothing, one goes first.
void ModelDrafter::catch_up() {
  std::vector<Job*> first;
  std::vector<Job*> rest;
  std::set<std::uint32_t> prompts;  // being computed
  for (Job& job : jobs_) {
    Request& r = *job.request;
    r.drafted.clear();
    r.computed = std::min(r.computed, r.text.size() - 1);  // the last row gives the logits
    const RequestId id = job.slot->id;
    const bool waits = r.computed == 0 && !copy_prompt(id, r) && !prompts.insert(id.prompt).second;
    (waits ? rest : first).push_back(&job);
  }
  advance(first);
  for (Job* job : rest) copy_prompt(job->slot->id, *job->request);
  advance(rest);
}

void ModelDrafter::advance(std::span<Job* const> jobs) {
  const auto most = static_cast<std::size_t>(options_.max_requests + options_.prefill_chunk);
  for (auto job = jobs.begin(); job != jobs.end();) {
    while (job != jobs.end() && tokens_.size() < most) {
      Request& r = *(*job)->request;
      const std::size_t rows = std::min(most - tokens_.size(), r.text.size() - r.computed);
      add_rows(r, std::span(r.text).subspan(r.computed, rows), r.computed);
      r.computed += rows;
      if (r.computed < r.text.size()) break;
      ranked_jobs_.push_back(*job);
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
