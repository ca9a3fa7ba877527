#include "runtime/draft/head_drafter.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace paceline::draft {
namespace {

SequenceDrafterOptions with_width(SequenceDrafterOptions options, const HeadConfig& head) {
  const kernels::PassRows most = rows_of_request(head, options.paths, options.max_length);
  options.width = most.rows;
  options.logit_rows = most.logit_rows;
  return options;
}

}  // namespace

kernels::PassRows rows_of_request(const HeadConfig& head, int paths, int max_length) {
  // The first row of a block is the last token's.
  if (const int block = block_size(head); block > 0)
    return {.rows = block, .logit_rows = std::min(max_length, block - 1)};
  const int rows = mask_token(head) ? max_length : paths;
  return {.rows = rows, .logit_rows = rows};
}

HeadDrafter::HeadDrafter(kernels::Backend& backend,
                         std::shared_ptr<const model::HeadWeights> weights,
                         std::shared_ptr<const kernels::Embedding> embedding,
                         TensorParallelGroup& alone, const SamplingParams& sampling,
                         std::vector<TokenId> stops, SequenceDrafterOptions options)
    : SequenceDrafter(backend,
                      std::make_unique<HeadSequences>(backend, weights, std::move(embedding), alone,
                                                      with_width(options, weights->config())),
                      sampling, std::move(stops), with_width(options, weights->config())) {
  warm_up();
}

void HeadDrafter::propose_together(std::span<DraftSlot> batch, Levels* levels) {
  jobs_.clear();
  members_.clear();
  for (DraftSlot& slot : batch) {
    Job job(begin(slot));
    if (job.length < 1) continue;
    // No row is computed for the last level.
    members_.push_back({slot.id, slot.assumed, (job.length - 1) * rows_of_level(job)});
    jobs_.push_back(std::move(job));
  }
  sequences_->begin(members_);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const int ahead = members_[i].ahead;
    jobs_[i].length = ahead < 0 ? 0 : 1 + ahead / rows_of_level(jobs_[i]);
  }
  nodes_.clear();
  grow(levels);
  if (sequences_->at_once()) grow_at_once();
  write();
}

/// Grows each tree from the tokens that are likely at each distance from its text.
void HeadDrafter::grow_at_once() {
  for (Job& job : jobs_) {
    for (const std::vector<DynamicTree::Child>& likely : job.levels) {
      if (job.depth++ == 0) {
        job.tree.add(-1, likely);
        continue;
      }
      for (const std::int32_t node : job.tree.expand(job.paths, stops(*job.text)))
        job.tree.add(node, likely);
    }
  }
}

void HeadDrafter::judge(Levels& levels, int level) {
  frontier_.clear();
  growing_.clear();
  for (std::size_t i = 0; i < next_.size(); ++i) {
    const DynamicTree& tree = jobs_[next_[i].member].tree;
    frontier_.push_back(static_cast<float>(tree.log_probability(nodes_[i])));
  }
  const auto end_of = [this](std::size_t first) {
    std::size_t last = first;
    while (last < next_.size() && next_[last].member == next_[first].member) ++last;
    return last;
  };
  for (std::size_t first = 0; first < next_.size(); first = end_of(first)) {
    const Job& job = jobs_[next_[first].member];
    growing_.push_back({job.slot->id, job.text->noise, job.first,
                        std::span(frontier_).subspan(first, end_of(first) - first)});
  }
  levels.judge(level, growing_);
  std::size_t kept = 0;
  std::size_t first = 0;
  for (const GrowingDraft& draft : growing_) {
    const std::size_t last = end_of(first);
    if (!draft.grows) jobs_[next_[first].member].length = level;
    for (; first < last; ++first) {
      if (!draft.grows) continue;
      next_[kept] = next_[first];
      nodes_[kept++] = nodes_[first];
    }
  }
  next_.resize(kept);
  nodes_.resize(kept);
}

/// Finds the likeliest tokens of the last level of each tree that goes on.
void HeadDrafter::find_next() {
  next_.clear();
  nodes_.clear();
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    Job& job = jobs_[i];
    if (job.depth >= job.length) continue;
    const std::size_t before = job.expanded.size();
    for (const std::int32_t node : job.tree.expand(job.paths, stops(*job.text))) {
      const std::int32_t parent = job.tree.parent(node);
      const auto at = std::find(job.expanded.begin(), job.expanded.begin() + before, parent);
      const auto row = static_cast<std::int32_t>(at - job.expanded.begin());
      next_.push_back(
          {static_cast<int>(i), job.tree.token(node), parent < 0 ? DraftSequences::kRoot : row});
      nodes_.push_back(node);
      job.expanded.push_back(node);
    }
  }
}

/// Adds tokens to the trees, or with at_once() to the levels.
void HeadDrafter::rank(std::span<const int> jobs, const float* logits) {
  int count = 0;
  sample_rows_.clear();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs_[jobs[i]];
    const int depth = sequences_->at_once() ? job.read++
                      : nodes_.empty()      ? 0
                                            : job.tree.depth(nodes_[i]);
    sample_rows_.push_back(sample_row(*job.text, job.first + depth));
    count = std::max(count, job.paths + 1);
  }
  rank_rows(logits, count);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs_[jobs[i]];
    const auto best = std::span(ranked_).subspan(i * count, job.paths + 1);
    double log_of_best = 0;
    if (options_.noise == DraftNoise::greedy) {
      log_of_best = best_log_probability(logits, i);
    } else {
      double sum = 0;
      for (const kernels::Ranked& r : best)
        sum += std::exp(static_cast<double>(r.score) - best[0].score);
      log_of_best = -std::log(sum);
    }
    children_.clear();
    for (const kernels::Ranked& r : best.first(job.paths)) {
      if (r.token < 0) break;
      children_.push_back({r.token, log_of_best + r.score - best[0].score});
    }
    if (sequences_->at_once()) {
      job.levels.push_back(children_);
      continue;
    }
    const std::int32_t parent = nodes_.empty() ? -1 : nodes_[i];
    job.tree.add(parent, children_);
    job.depth = parent < 0 ? 1 : job.tree.depth(parent) + 1;
  }
}

/// Log-probability of the row's likeliest token, among all tokens.
double HeadDrafter::best_log_probability(const float* logits, std::size_t row) {
  const int vocab = sequences_->vocab();
  kernels::Sampled best;
  backend_.sample(logits + row * vocab, vocab, std::min(vocab, options_.vocab),
                  {&sample_rows_[row], 1}, {&best, 1});
  return best.logprob;
}

void HeadDrafter::write() const {
  for (const Job& job : jobs_) {
    const int most = std::min(job.slot->limits.max_tokens, job.slot->output.capacity());
    job.slot->count = job.tree.write(most, job.slot->output);
    job.slot->calls = sequences_->at_once() ? std::min(job.depth, 1) : job.depth;
  }
}

}  // namespace paceline::draft
