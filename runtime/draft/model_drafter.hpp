// Drafts with a small causal language model of the target's vocabulary.
//
// A chain has the tokens that the draft model itself would sample, by default with the target's own
// noise (core/philox.hpp): argmax(q / T + g) agrees with argmax(p / T + g) far more often than
// independent draws from q and p agree, and more often than the likeliest token does. On a pair
// with 4.3 bits of entropy per token, 0.79, 0.20 and 0.34 of first tokens agree
// (tests/bench/README.md). With little entropy the three are alike; independent draws never win.
//
// With limits.paths = k > 1 the draft is a tree. Each level of the main path has the k best tokens
// under the noise: the best one is followed, and the others are leaves. The ranking that finds the
// best token finds the leaves too, so a tree takes only the draft passes of its main path. To
// follow a second token would cost as much again, for a token that counts only if the first is
// wrong. If the target chooses a leaf, a step is saved: without the leaf it would have ended there.
//
// The ranking's second token is reported too (DraftSlot::runners_up). If the first turns out wrong,
// the second is the target's token in 0.68 of the cases on the embedded pair
// (tests/bench/README.md).
//
// DraftSequences holds the requests' texts and KV, and catches up.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/draft/sequence_drafter.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::draft {

using ModelDrafterOptions = SequenceDrafterOptions;

/// Tokens of the drafter's own drafts still have KV when they are assumed, so a chain grows by w
/// tokens in w passes, however far it is ahead. An output has the main path, then the leaves by
/// falling score, so that max_tokens cuts the least likely leaves first.
///
/// Scores: the conditional probability of a token is taken as the softmax over the paths + 1 best
/// perturbed scores of its level. It is high where the best token leads by much, so that small
/// errors of q change nothing. It grows with the true acceptance, but is not calibrated yet.
class ModelDrafter final : public SequenceDrafter {
 public:
  /// `load`: loads the whole draft model. `group`: of this rank alone. `sampling`, `stops`: the
  /// target's; `stops` end a chain and are banned before min_tokens. `backend` and `group` must
  /// outlive the drafter. Drafts once to warm up. Throws std::invalid_argument on bad options, and
  /// the exceptions of `load` and propose().
  ModelDrafter(kernels::Backend& backend, model::LoadWeights load, TensorParallelGroup& group,
               const SamplingParams& sampling, std::vector<TokenId> stops,
               const ModelDrafterOptions& options);

 private:
  struct Job : Started {
    explicit Job(const Started& started) : Started(started) {}
    /// [levels, paths + 1] best tokens by falling score.
    std::vector<kernels::Ranked> ranked;
    float log_probability = 0;  ///< log-probability of the main path, if drafts are judged
    [[nodiscard]] int levels() const { return static_cast<int>(ranked.size()) / (paths + 1); }
    [[nodiscard]] std::span<const kernels::Ranked> level(int i) const {
      return std::span(ranked).subspan(static_cast<std::size_t>(i) * (paths + 1), paths + 1);
    }
  };

  void propose_together(std::span<DraftSlot> batch, Levels* levels) override;
  void rank(std::span<const int> jobs, const float* logits) override;
  void find_next() override;
  void judge(Levels& levels, int level) override;
  static void write(const Job& job);

  std::vector<Job> jobs_;  ///< the round's
};

}  // namespace paceline::draft
