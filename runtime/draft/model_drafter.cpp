#include "runtime/draft/model_drafter.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "runtime/draft/model_sequences.hpp"

namespace paceline::draft {
namespace {

/// Sum of the level's perturbed likelihoods, scaled so that the best token's is 1.
double sum_of(std::span<const kernels::Ranked> level) {
  double sum = 0;
  for (const kernels::Ranked& r : level)
    sum += std::exp(static_cast<double>(r.score) - level[0].score);
  return sum;
}

}  // namespace

ModelDrafter::ModelDrafter(kernels::Backend& backend, model::LoadWeights load,
                           TensorParallelGroup& group, const SamplingParams& sampling,
                           std::vector<TokenId> stops, const ModelDrafterOptions& options)
    : SequenceDrafter(backend,
                      std::make_unique<ModelSequences>(backend, std::move(load), group, options),
                      sampling, std::move(stops), options) {
  warm_up();
}

void ModelDrafter::propose_together(std::span<DraftSlot> batch, Levels* levels) {
  jobs_.clear();
  members_.clear();
  for (DraftSlot& slot : batch) {
    const Started job = begin(slot);
    if (job.length < 1) continue;
    jobs_.emplace_back(job);
    // No pass is run for the last token of a chain.
    members_.push_back({slot.id, slot.assumed, job.length - 1, slot.branch});
  }
  if (sequences_->suspended()) return;
  sequences_->begin(members_);
  for (std::size_t i = 0; i < jobs_.size(); ++i) jobs_[i].length = members_[i].ahead + 1;
  grow(levels);
  for (const Job& job : jobs_) write(job);
}

void ModelDrafter::judge(Levels& levels, int level) {
  growing_.clear();
  for (const DraftSequences::Next& next : next_) {
    Job& job = jobs_[next.member];
    job.log_probability -= static_cast<float>(std::log(sum_of(job.level(level - 1))));
    growing_.push_back(
        {job.slot->id, job.text->noise, job.first, std::span(&job.log_probability, 1)});
  }
  levels.judge(level, growing_);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < growing_.size(); ++i) {
    if (growing_[i].grows) {
      next_[kept++] = next_[i];
    } else {
      jobs_[next_[i].member].length = level;
    }
  }
  next_.resize(kept);
}

/// Finds the best token of the last level of each path that goes on.
void ModelDrafter::find_next() {
  next_.clear();
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    if (job.levels() == job.length) continue;
    const TokenId best = job.level(job.levels() - 1)[0].token;
    if (!is_stop(*job.text, best)) next_.push_back({static_cast<int>(i), best});
  }
}

/// Appends a level to each of these jobs.
void ModelDrafter::rank(std::span<const int> jobs, const float* logits) {
  int count = 0;
  sample_rows_.clear();
  for (const int i : jobs) {
    const Job& job = jobs_[i];
    sample_rows_.push_back(sample_row(*job.text, job.first + job.levels()));
    count = std::max(count, job.paths + 1);
  }
  rank_rows(logits, count);
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
    path /= sum_of(level);  // times the best token's share, exp(0) / sum
    slot.output.set(i, level[0].token, i - 1, static_cast<float>(path));
    if (!slot.runners_up.empty()) slot.runners_up[i] = level[1].token;
    for (int j = 1; j < job.paths && level[j].token >= 0; ++j) {
      const double share = std::exp(static_cast<double>(level[j].score) - level[0].score);
      leaves.push_back({level[j].token, i - 1, static_cast<float>(path * share)});
    }
  }
  slot.count = job.levels();
  slot.calls = job.levels();
  std::ranges::stable_sort(leaves, std::greater{}, &Leaf::score);
  const int most = std::min(slot.limits.max_tokens, slot.output.capacity());
  for (const Leaf& leaf : leaves) {
    if (slot.count == most) break;
    slot.output.set(slot.count++, leaf.token, leaf.parent, leaf.score);
  }
}

}  // namespace paceline::draft
