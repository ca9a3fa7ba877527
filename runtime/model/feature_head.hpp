// A head on a target: it predicts a text's next tokens from the target's features of the text.
//
// Row i of a text is the embedding of token i + 1 and the feature of token i, side by side; it
// predicts token i + 2. Where the target has computed token i, the feature is the target's. Beyond,
// the outcome of the head's own row i - 1 stands in for the feature that the target has yet to
// compute. Rows of a DFlash head are of two other kinds (dflash_head.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/model/activations.hpp"
#include "runtime/model/head_weights.hpp"
#include "runtime/model/sharding.hpp"

namespace paceline::model {

/// Parts of a head. `backend` and `group` must outlive it. The reference is last so that no part
/// before it can be left out.
struct HeadParts {
  kernels::Backend& backend;
  std::shared_ptr<const HeadWeights> weights;
  /// The target's; ignored where the head has its own.
  std::shared_ptr<const kernels::Embedding> embedding;
  int max_rows;  ///< rows of the largest pass
  int max_logit_rows;
  int max_position;            ///< positions of the longest sequence
  TensorParallelGroup& group;  ///< a group of one rank
};

/// Computes with a head, in buffers for its largest pass. Used by one thread.
class FeatureHead {
 public:
  /// Output for a pass's logit rows, in memory of the backend; valid until the next pass.
  struct Output {
    /// [logit rows, vocabulary of the target] fp32: -infinity for tokens that the head does not
    /// have.
    const float* logits = nullptr;
    const float* features = nullptr;  ///< [logit rows, hidden] features for the rows that follow
  };

  virtual ~FeatureHead() = default;
  FeatureHead(const FeatureHead&) = delete;
  FeatureHead& operator=(const FeatureHead&) = delete;

  [[nodiscard]] kernels::KvShape kv_shape(int block) const;
  [[nodiscard]] const HeadWeights& weights() const { return *weights_; }
  /// Sizes of the head's layer.
  [[nodiscard]] const ModelConfig& layer() const { return layer_of(weights_->config()); }
  [[nodiscard]] std::size_t activation_bytes() const { return activations_.bytes(); }
  /// Bytes of one row of the target's features, in the compute dtype, as Decoder::features() has
  /// them.
  [[nodiscard]] std::size_t feature_bytes() const;

  /// Runs rows with features of the target. `features`: [rows, feature_bytes()] in host memory.
  /// `tokens`: [rows] for each row the token after the one that its feature belongs to. `cache`: as
  /// kv_shape() says.
  Output forward(std::span<const std::byte> features, std::span<const TokenId> tokens,
                 std::span<const kernels::Segment> segments,
                 std::span<const std::int32_t> logit_rows, const kernels::KvShape& kv,
                 std::byte* cache);
  /// Runs rows with features from the head's own earlier rows. `features`: [rows, hidden] in host
  /// memory; empty for a DFlash head's blocks.
  Output forward(std::span<const float> features, std::span<const TokenId> tokens,
                 std::span<const kernels::Segment> segments,
                 std::span<const std::int32_t> logit_rows, const kernels::KvShape& kv,
                 std::byte* cache);

 protected:
  explicit FeatureHead(HeadParts parts);

  /// Stores the target's features for the next pass.
  virtual void take(std::span<const std::byte> features) = 0;
  /// The operations of a pass, or of a part of it. A backend may replay them, or call this on
  /// several threads, so nothing here reads the batch or changes the head. `of_target`: features
  /// are those of take(); else those in features_.
  virtual void compute(kernels::Operations& operations, bool of_target) = 0;

  [[nodiscard]] static std::vector<float> floats_of(std::span<const std::byte> values, DType dtype);
  void write(std::span<const float> values, const Activation<float>& to);
  /// Adds `delta` (null: nothing) to a pass's rows of the residual, and writes them normalised, in
  /// the compute dtype or in fp32.
  void norm(kernels::Operations& operations, float* residual, const float* delta,
            const Vector& weight, std::byte* out) const;
  void norm(kernels::Operations& operations, float* residual, const float* delta,
            const Vector& weight, float* out) const;
  /// Writes the embeddings of a pass's tokens and its features, each normalised, side by side into
  /// input_.
  void join(kernels::Operations& operations, const Vector& token_norm);
  /// Writes logits and features of the logit rows. `normed`: [rows, hidden] of the compute dtype,
  /// after the last norm. `outcome`: [rows, hidden] features for the rows that follow.
  void finish(kernels::Operations& operations, const std::byte* normed, const float* outcome);

  kernels::Backend& backend_;
  std::shared_ptr<const HeadWeights> weights_;
  std::shared_ptr<const kernels::Embedding> embedding_;
  Shard shard_;
  kernels::PassRows most_;  ///< rows of the largest pass, as the backend pads them
  kernels::RopeTable rope_view_;
  Activations activations_;
  // max_rows as the backend pads them; bytes are values of the compute dtype.
  Activation<float> features_;        ///< [max_rows, hidden]
  Activation<float> embedded_;        ///< [max_rows, hidden]
  Activation<float> feature_normed_;  ///< [max_rows, hidden]
  Activation<float> delta_;           ///< [max_rows, hidden]
  Activation<std::byte> input_;       ///< [max_rows, 2 * hidden]
  Activation<std::byte> normed_;      ///< [max_rows, hidden]

 private:
  Output run(kernels::Recording& recording, bool of_target, std::span<const TokenId> tokens,
             std::span<const kernels::Segment> segments, std::span<const std::int32_t> logit_rows,
             const kernels::KvShape& kv, std::byte* cache);

  Vector rope_;
  std::unique_ptr<kernels::Recording> first_;  ///< rows with the target's features
  std::unique_ptr<kernels::Recording> next_;   ///< rows with the head's own features
  Activation<std::byte> last_;                 ///< [max_logit_rows, hidden]
  Activation<float> last_features_;            ///< [max_logit_rows, hidden]
  Activation<float> draft_logits_;             ///< [max_logit_rows, draft_vocab()]
  Activation<float> logits_;                   ///< [max_logit_rows, vocab]; none for equal ids
};

/// Makes a head of the kind of its weights.
[[nodiscard]] std::unique_ptr<FeatureHead> make_head(HeadParts parts);

/// Bytes of a row of a head's buffers, without its logits.
[[nodiscard]] std::uint64_t row_bytes(const HeadConfig& config, DType compute);

}  // namespace paceline::model
