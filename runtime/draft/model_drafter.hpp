// Drafts with a small causal language model of the target's vocabulary.
//
// A chain is what the draft model itself would sample, by default with the target's own noise
// (design, section 1): argmax(q / T + g) agrees with argmax(p / T + g) far more often than
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
// KV: what is held for a request is a prefix of its text and, behind all of it, the tokens of its
// last chain. Those that the target commits stay, others are overwritten. When the pool is full,
// requests that were not drafted for longest give theirs up and catch up when asked for again, as
// after steps that they sat out. The KV of a prompt is computed once and copied to its siblings,
// for which the request that ended last leaves it behind while there is room.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/kv/block_pool.hpp"
#include "runtime/model/decoder.hpp"

namespace paceline::draft {

/// How the next token of a chain is chosen from the draft model's distribution q.
enum class DraftNoise : std::uint8_t {
  shared,       ///< argmax(q / T + g), g the noise the target samples with
  greedy,       ///< argmax q
  independent,  ///< argmax(q / T + h), h noise of the drafter's own
};

struct ModelDrafterOptions {
  DraftNoise noise = DraftNoise::shared;
  int vocab = 0;            ///< the target's; ids past it, which pad the draft's, are not drafted
  int max_requests = 64;    ///< drafted for together; larger batches go in parts of this many
  int kv_block = 16;        ///< positions a block, a multiple of 16
  int kv_blocks = 0;        ///< blocks in the pool
  int max_position = 0;     ///< longest sequence, tokens; at most the model's context
  int max_length = 8;       ///< longest chain, whatever the limits of a slot
  int paths = 1;            ///< most tokens of a level, 1 to kernels::kMaxRanked - 1
  int prefill_chunk = 256;  ///< rows of a pass beside one for each request
};

/// A draft depends on the request's text, noise and limits alone, not on the batch or on what is
/// held of it; but where the pool is short it is shorter, or there is none. It ends at a stop
/// token, at the response's longest and at the longest sequence.
///
/// Scores: the conditional probability of a token is taken as the softmax over the paths + 1 best
/// perturbed scores of its level. It is high where the best token leads by much, which small errors
/// of q cannot upset: a measure of agreement that grows with it, not yet calibrated.
class ModelDrafter final : public Drafter {
 public:
  /// `group`: of this rank alone. `sampling`, `stops`: the target's; `stops` end a chain and are
  /// banned before min_tokens. `backend`, `source` and `group` must outlive the drafter. Drafts
  /// once to warm up. Throws std::invalid_argument on bad options, and as model::Decoder and
  /// propose() do.
  ModelDrafter(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
               TensorParallelGroup& group, DType compute, const SamplingParams& sampling,
               std::vector<TokenId> stops, const ModelDrafterOptions& options);

  /// These three run no forward pass. A request whose text has a token outside the draft model's
  /// vocabulary gets no drafts.
  void start(const DraftStart& start, double now) override;
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override;
  void finish(RequestId id, double now) override;
  [[nodiscard]] bool lags() const override { return true; }
  [[nodiscard]] int lag(RequestId id) const override;
  /// Entries of an output: the main path, then leaves by falling score, so that max_tokens cuts the
  /// least likely leaves first, and a token's best child comes before its others. Throws
  /// std::logic_error when a request is in the batch twice, Error (internal) when the model gives
  /// logits that are not finite.
  void propose(std::span<DraftSlot> batch, double now) override;

  /// Rows of all forward passes so far.
  [[nodiscard]] std::uint64_t rows() const { return rows_; }
  [[nodiscard]] std::size_t kv_bytes() const { return cache_->size(); }
  [[nodiscard]] std::size_t weight_bytes() const { return decoder_.weight_bytes(); }

 private:
  struct Request {
    std::vector<TokenId> text;  ///< prompt and response
    std::size_t prompt_size = 0;
    NoiseKey noise;
    bool unknown_token = false;
    bool ended = false;                ///< kept for its prompt's KV alone
    std::vector<std::int32_t> blocks;  ///< KV of its positions
    std::size_t computed = 0;          ///< positions of the text whose KV is held
    std::vector<TokenId> drafted;      ///< whose KV follows that of the text, all of which is held
    std::uint64_t used = 0;            ///< the last round it was drafted for in
  };
  /// One request of a round.
  struct Job {
    DraftSlot* slot = nullptr;
    Request* request = nullptr;
    int length = 0;  ///< of the main path at most
    int paths = 1;
    /// [levels, paths + 1] best tokens by falling score.
    std::vector<kernels::Ranked> ranked;
    [[nodiscard]] int levels() const { return static_cast<int>(ranked.size()) / (paths + 1); }
    [[nodiscard]] std::span<const kernels::Ranked> level(int i) const {
      return std::span(ranked).subspan(static_cast<std::size_t>(i) * (paths + 1), paths + 1);
    }
  };

  Request& request(RequestId id);
  void append(Request& r, std::span<const TokenId> tokens) const;
  void release_kv(Request& r);

  void warm_up();
  void propose_together(std::span<DraftSlot> batch);
  [[nodiscard]] int longest(const DraftSlot& slot, const Request& r) const;
  void reserve();
  void evict_oldest();
  void catch_up();
  void advance(std::span<Job* const> jobs);
  [[nodiscard]] const Request* sibling(RequestId id) const;
  bool copy_prompt(RequestId id, Request& r);
  void extend_paths();
  void add_rows(const Request& r, std::span<const TokenId> tokens, std::size_t position);
  void run_pass();
  [[nodiscard]] bool is_stop(TokenId token) const;
  static void write(const Job& job);

  ModelDrafterOptions options_;
  SamplingParams sampling_;
  std::vector<TokenId> stops_;
  kernels::Backend& backend_;
  model::Decoder decoder_;
  kernels::KvShape kv_shape_;
  kv::BlockPool pool_;
  std::unique_ptr<kernels::Buffer> cache_;  ///< [kv_blocks] chunks of kv_shape_.block_bytes()

  std::map<RequestId, Request> requests_;
  std::uint64_t round_ = 0;
  std::uint64_t rows_ = 0;

  std::vector<Job> jobs_;
  // The pass being put together.
  std::vector<TokenId> tokens_;
  std::vector<kernels::Segment> segments_;
  std::vector<std::int32_t> logit_rows_;
  std::vector<Job*> ranked_jobs_;  ///< [logit_rows_]
  std::vector<kernels::SampleRow> sample_rows_;
  std::vector<kernels::Ranked> ranked_;
};

}  // namespace paceline::draft
