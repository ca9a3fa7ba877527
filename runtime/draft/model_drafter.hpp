// Drafts with a small causal language model of the target's vocabulary.
//
// A chain is what the draft model itself would sample, by default with the target's own noise
// (core/philox.hpp): argmax(q / T + g) agrees with argmax(p / T + g) far more often than
// independent draws from q and p do, and more often than the likeliest token: 0.79 of first tokens
// against 0.20 and 0.34 on a pair with 4.3 bits of entropy a token (tests/bench/README.md). Where
// the target hardly hesitates the three are alike; nowhere are independent draws better.
//
// With limits.paths = k > 1 the draft is a tree: at every level of the main path the k best tokens
// under the noise, of which the best is followed and the others are leaves. The leaves come out of
// the ranking that finds the best token, so a tree costs the draft passes of its main path, whereas
// following a second token would cost as much as the first again and is reached only where the
// first was wrong. A leaf that the target chooses saves the step its rejection would have ended.
//
// The second of the ranking is told, too: where the first turns out wrong, it is what the target
// says in 0.68 of the cases on the embedded pair (tests/bench/README.md).
//
// DraftSequences holds the requests' texts and KV, and catches up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/draft/sequence_drafter.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::draft {

using ModelDrafterOptions = SequenceDrafterOptions;

/// The KV of the drafter's own tokens is there when they are assumed, so a chain grows by w tokens
/// in w passes, however far it is ahead. Entries of an output: the main path, then leaves by
/// falling score, so that max_tokens cuts the least likely leaves first.
///
/// Scores: the conditional probability of a token is taken as the softmax over the paths + 1 best
/// perturbed scores of its level. It is high where the best token leads by much, which small errors
/// of q cannot upset: a measure of agreement that grows with it, not yet calibrated.
class ModelDrafter final : public SequenceDrafter {
 public:
  /// `load`: of the whole draft model. `group`: of this rank alone. `sampling`, `stops`: the
  /// target's; `stops` end a chain and are banned before min_tokens. `backend` and `group` must
  /// outlive the drafter. Drafts once to warm up. Throws std::invalid_argument on bad options, and
  /// as `load` and propose() do.
  ModelDrafter(kernels::Backend& backend, model::LoadWeights load, TensorParallelGroup& group,
               const SamplingParams& sampling, std::vector<TokenId> stops,
               const ModelDrafterOptions& options);

 private:
  /// One request of a round.
  struct Job {
    DraftSlot* slot = nullptr;
    const DraftText* text = nullptr;
    std::int32_t first = 0;  ///< index in the response of the first drafted token
    int length = 0;          ///< most tokens of the main path
    int paths = 1;
    /// [levels, paths + 1] best tokens by falling score.
    std::vector<kernels::Ranked> ranked;
    float log_probability = 0;  ///< of the main path, where it is judged
    [[nodiscard]] int levels() const { return static_cast<int>(ranked.size()) / (paths + 1); }
    [[nodiscard]] std::span<const kernels::Ranked> level(int i) const {
      return std::span(ranked).subspan(static_cast<std::size_t>(i) * (paths + 1), paths + 1);
    }
  };

  void propose_together(std::span<DraftSlot> batch, Levels* levels) override;
  void find_next();
  void judge(Levels& levels, int level);
  void rank(std::span<const int> jobs, const float* logits);
  static void write(const Job& job);

  // The round.
  std::vector<Job> jobs_;
  std::vector<DraftSequences::Member> members_;  ///< [jobs_]
  std::vector<DraftSequences::Next> next_;
  std::vector<GrowingDraft> growing_;  ///< [next_]
};

}  // namespace paceline::draft
