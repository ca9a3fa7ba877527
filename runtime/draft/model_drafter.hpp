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
// What is held of requests, and how it catches up, is DraftSequences'.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/draft/draft_sequences.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::draft {

/// How the next token of a chain is chosen from the draft model's distribution q.
enum class DraftNoise : std::uint8_t {
  shared,       ///< argmax(q / T + g), g the noise the target samples with
  greedy,       ///< argmax q
  independent,  ///< argmax(q / T + h), h noise of the drafter's own
};

/// max_requests: drafted for together; larger batches go in parts of so many.
struct ModelDrafterOptions : DraftSequencesOptions {
  DraftNoise noise = DraftNoise::shared;
  int vocab = 0;       ///< the target's; ids past it, which pad the draft's, are not drafted
  int max_length = 8;  ///< longest chain, whatever the limits of a slot
  int paths = 1;       ///< most tokens of a level, 1 to kernels::kMaxRanked - 1
};

/// A draft depends on the request's text, noise and limits alone, not on the batch or on what is
/// held of it; but where the pool is short it is shorter, or there is none. It ends at a stop
/// token, at the response's longest and at the longest sequence. Tokens it assumes count as said in
/// all of this: a draft is what it would be if they were committed. The KV of those that it drafted
/// itself is there, so a chain grows by w tokens in w passes, however far it is ahead.
///
/// Scores: the conditional probability of a token is taken as the softmax over the paths + 1 best
/// perturbed scores of its level. It is high where the best token leads by much, which small errors
/// of q cannot upset: a measure of agreement that grows with it, not yet calibrated.
class ModelDrafter final : public Drafter {
 public:
  /// `load`: of the whole draft model. `group`: of this rank alone. `sampling`, `stops`: the
  /// target's; `stops` end a chain and are banned before min_tokens. `backend` and `group` must
  /// outlive the drafter. Drafts once to warm up. Throws std::invalid_argument on bad options, and
  /// as `load` and propose() do.
  ModelDrafter(kernels::Backend& backend, model::LoadWeights load, TensorParallelGroup& group,
               const SamplingParams& sampling, std::vector<TokenId> stops,
               const ModelDrafterOptions& options);

  /// These four run no forward pass. A request whose text has a token outside the draft model's
  /// vocabulary gets no drafts, nor does a slot that assumes one. The KV of one that leaves stays
  /// while there is room.
  void start(const DraftStart& start, double /*now*/) override { sequences_.start(start); }
  void commit(RequestId id, std::span<const TokenId> tokens, double /*now*/) override {
    sequences_.commit(id, tokens);
  }
  void finish(RequestId id, double /*now*/) override { sequences_.finish(id); }
  void leave(RequestId id, double /*now*/) override { sequences_.leave(id); }
  [[nodiscard]] bool lags() const override { return true; }
  [[nodiscard]] int lag(RequestId id) const override { return sequences_.lag(id); }
  /// Entries of an output: the main path, then leaves by falling score, so that max_tokens cuts the
  /// least likely leaves first, and a token's best child comes before its others. `levels` is asked
  /// before each pass that takes drafts further. Throws std::logic_error when a request is in the
  /// batch twice, Error (internal) when the model gives logits that are not finite.
  void propose(std::span<DraftSlot> batch, double now, Levels* levels) override;

  [[nodiscard]] bool present() const override { return !sequences_.suspended(); }
  [[nodiscard]] bool gives_memory() const override { return true; }
  /// Gives back KV and activations, and the weights unless somebody keeps them.
  void suspend() override { sequences_.suspend(); }
  /// A part of loading the weights again; at the end drafts once to warm up.
  bool resume() override;
  [[nodiscard]] std::size_t bytes() const override { return sequences_.bytes(); }

  /// Rows of all forward passes so far, but for those that warmed up.
  [[nodiscard]] std::uint64_t rows() const { return sequences_.rows() - warm_up_rows_; }
  [[nodiscard]] std::size_t kv_bytes() const { return sequences_.kv_bytes(); }
  [[nodiscard]] std::size_t weight_bytes() const { return sequences_.weight_bytes(); }

 private:
  /// One request of a round.
  struct Job {
    DraftSlot* slot = nullptr;
    const DraftText* text = nullptr;
    std::int32_t first = 0;  ///< index in the response of the first drafted token
    int length = 0;          ///< of the main path at most
    int paths = 1;
    /// [levels, paths + 1] best tokens by falling score.
    std::vector<kernels::Ranked> ranked;
    [[nodiscard]] int levels() const { return static_cast<int>(ranked.size()) / (paths + 1); }
    [[nodiscard]] std::span<const kernels::Ranked> level(int i) const {
      return std::span(ranked).subspan(static_cast<std::size_t>(i) * (paths + 1), paths + 1);
    }
  };

  void warm_up();
  void propose_together(std::span<DraftSlot> batch, Levels* levels);
  [[nodiscard]] int longest(const DraftSlot& slot, const DraftText& text) const;
  void find_next();
  void rank(std::span<const int> jobs, const float* logits);
  [[nodiscard]] bool is_stop(TokenId token) const;
  static void write(const Job& job);

  ModelDrafterOptions options_;
  SamplingParams sampling_;
  std::vector<TokenId> stops_;
  kernels::Backend& backend_;
  DraftSequences sequences_;
  std::uint64_t warm_up_rows_ = 0;

  // The round.
  std::vector<Job> jobs_;
  std::vector<DraftSequences::Member> members_;  ///< [jobs_]
  std::vector<DraftSequences::Next> next_;
  std::vector<kernels::SampleRow> sample_rows_;
  std::vector<kernels::Ranked> ranked_;
};

}  // namespace paceline::draft
