// The common part of drafters that compute over sequences: draft models, and heads on the target.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/draft/draft_sequences.hpp"
#include "runtime/draft/drafter.hpp"

namespace paceline::draft {

/// The choice of the next token from the drafter's distribution q.
enum class DraftNoise : std::uint8_t {
  shared,  ///< argmax(q / T + g), g the noise the target samples with
  greedy,  ///< argmax q
};

/// max_requests: most requests drafted for together; larger batches are split into parts.
struct SequenceDrafterOptions : DraftSequencesOptions {
  DraftNoise noise = DraftNoise::shared;
  int vocab = 0;  ///< the target's; ids past it, by which a draft model is padded, are left out
  int max_length = 8;                   ///< longest path, whatever the limits of a slot
  int paths = 1;                        ///< most tokens of a level, 1 to kernels::kMaxRanked - 1
  std::string weights = "the weights";  ///< path of the weights, for error messages
};

/// A draft depends on the request's text, noise and limits, and on which of its features are known.
/// It does not depend on the batch or on held KV, but a pool that is too small makes it shorter, or
/// empty. A draft ends at stop tokens, at the longest response and at the longest sequence. It is
/// the same as if the assumed tokens were committed.
class SequenceDrafter : public Drafter,
                        public FeatureReader,
                        public LaggingState,
                        public MemoryGiver {
 public:
  /// start() to leave() run no forward pass. A request whose text has a token outside the drafter's
  /// vocabulary gets no drafts, nor does a slot that assumes such a token. Held KV of a request
  /// that leaves may stay while there is room.
  void start(const DraftStart& start, double /*now*/) override { sequences_->start(start); }
  void commit(RequestId id, std::span<const TokenId> tokens, double /*now*/) override {
    sequences_->commit(id, tokens);
  }
  void finish(RequestId id, double /*now*/) override { sequences_->finish(id); }
  void leave(RequestId id, double /*now*/) override { sequences_->leave(id); }
  [[nodiscard]] std::size_t feature_bytes() const override { return sequences_->feature_bytes(); }
  void observe(RequestId id, std::int32_t first, std::span<const std::byte> features) override {
    sequences_->observe(id, first, features);
  }
  [[nodiscard]] int lag(RequestId id) const override { return sequences_->lag(id); }
  /// A token's best child comes before its other children. `levels` is asked before each pass that
  /// makes drafts longer. Throws std::logic_error when a request, or a branch of it, is in the
  /// batch twice, Error (internal) when logits are not finite.
  void propose(std::span<DraftSlot> batch, double now, Levels* levels) override;

  [[nodiscard]] bool present() const override { return !sequences_->suspended(); }
  /// Gives back KV and activations, and the weights unless another owner keeps them.
  void suspend() override { sequences_->suspend(); }
  /// Loads a further part of the weights. After the last one, drafts once to warm up.
  [[nodiscard]] bool resume() override;
  [[nodiscard]] Capabilities capabilities() override {
    return {.features = feature_bytes() > 0 ? this : nullptr,
            .state = this,
            .memory = sequences_->gives_memory() ? this : nullptr,
            .branches = sequences_->branches()};
  }

  [[nodiscard]] std::size_t bytes() const { return sequences_->bytes(); }

  /// Rows of all forward passes so far, except for those that warmed up.
  [[nodiscard]] std::uint64_t rows() const { return sequences_->rows() - warm_up_rows_; }
  [[nodiscard]] std::size_t kv_bytes() const { return sequences_->kv_bytes(); }
  [[nodiscard]] std::size_t weight_bytes() const { return sequences_->weight_bytes(); }

 protected:
  /// One request of a round.
  struct Started {
    DraftSlot* slot = nullptr;
    const DraftText* text = nullptr;
    std::int32_t first = 0;  ///< index in the response of the first drafted token
    int length = 0;          ///< most levels, the last of which takes no row
    int paths = 1;           ///< most tokens of a level
  };

  /// `sampling`, `stops`: the target's, for requests without their own; `stops` end a path and are
  /// banned before min_tokens.
  /// `backend` outlives the drafter. Throws std::invalid_argument on bad options.
  SequenceDrafter(kernels::Backend& backend, std::unique_ptr<DraftSequences> sequences,
                  const SamplingParams& sampling, std::vector<TokenId> stops,
                  const SequenceDrafterOptions& options);

  /// Drafts once for a made-up request. To be called at the end of a constructor.
  void warm_up();
  /// Does propose() for a batch of at most max_requests.
  virtual void propose_together(std::span<DraftSlot> batch, Levels* levels) = 0;

  /// Empties the slot. A length below 1: it gets no draft.
  [[nodiscard]] Started begin(DraftSlot& slot) const;
  /// Has rank() read the texts of the round and, unless all is read at once, each further level.
  void grow(Levels* levels);
  /// Adds the tokens that may follow each text, or each token of next_, to these requests of the
  /// round. logits: [jobs].
  virtual void rank(std::span<const int> jobs, const float* logits) = 0;
  /// Finds the tokens of the last levels that get a further level.
  virtual void find_next() = 0;
  /// Removes the tokens of drafts that are to have no further level from next_.
  virtual void judge(Levels& levels, int level) = 0;
  /// Stop tokens of the request.
  [[nodiscard]] const std::vector<TokenId>& stops(const DraftText& text) const {
    return text.sampling.stops ? text.sampling.stops->ids : stops_;
  }
  [[nodiscard]] bool is_stop(const DraftText& text, TokenId token) const;
  /// The row's parameters for drawing the token at `index` of the response.
  [[nodiscard]] kernels::SampleRow sample_row(const DraftText& text, std::int32_t index) const;
  /// Ranks the `count` best tokens of each of sample_rows_: [rows, count] in ranked_.
  void rank_rows(const float* logits, int count);

  SequenceDrafterOptions options_;
  SamplingParams sampling_;
  std::vector<TokenId> stops_;
  std::vector<TokenId> banned_early_;
  kernels::Backend& backend_;
  std::unique_ptr<DraftSequences> sequences_;
  std::vector<kernels::SampleRow> sample_rows_;
  std::vector<kernels::Ranked> ranked_;

  // The round.
  std::vector<DraftSequences::Member> members_;
  std::vector<DraftSequences::Next> next_;
  std::vector<GrowingDraft> growing_;

 private:
  /// Tokens of the longest path that the slot may have.
  [[nodiscard]] int longest(const DraftSlot& slot, const DraftText& text) const;

  std::uint64_t warm_up_rows_ = 0;
};

}  // namespace paceline::draft
