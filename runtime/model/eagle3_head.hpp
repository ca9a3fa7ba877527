// An EAGLE-3 head: what comes after a text by the features that the target had of it (EAGLE-3,
// arXiv 2503.01840, section 3.1; tensors and order of operations as of SafeAILab's checkpoints).
//
// Row i of a text is the embedding of token i + 1 beside the feature of token i, and says what
// token i + 2 may be. Where the target has computed token i its feature is the target's, brought to
// the head's width by `fc` (in EAGLE-3.1 after norms of its own); beyond that it is what the head
// itself came to in row i - 1, which takes the place of what the target has yet to compute.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/backend.hpp"
#include "runtime/core/eagle3_config.hpp"
#include "runtime/core/weight_source.hpp"
#include "runtime/model/activations.hpp"
#include "runtime/model/gated_mlp.hpp"
#include "runtime/model/grouped_attention.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

/// A head's weights as a backend computes with them, whole. Do not change once loaded.
class Eagle3Weights {
 public:
  /// `compute`: as of the target. `source`: the head's, checked against `config`; needed while this
  /// is made, and as long as it is there where the head has embeddings of its own. With `shared` it
  /// packs a part, as Weights do, of packed_bytes(). Throws DataError on weights that are NaN or
  /// infinite (of shared ones, in the part that it packs).
  Eagle3Weights(kernels::Backend& backend, const Eagle3Config& config, const WeightSource& source,
                DType compute, const SharedPacking& shared = {});

  [[nodiscard]] const Eagle3Config& config() const { return config_; }
  [[nodiscard]] DType compute() const { return compute_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< of all packed matrices

  [[nodiscard]] const kernels::Linear& fc() const { return *fc_; }
  /// attention_norm: of the embedding.
  [[nodiscard]] const LayerWeights& layer() const { return layer_; }
  [[nodiscard]] const Vector& feature_norm() const { return feature_norm_; }
  /// Of what `fc` reads: none, one of all of it, or one for each layer's features.
  [[nodiscard]] const std::vector<Vector>& fc_norms() const { return fc_norms_; }
  /// Null: they are the target's.
  [[nodiscard]] const kernels::Embedding* embedding() const { return embedding_.get(); }
  [[nodiscard]] const Vector& final_norm() const { return final_norm_; }
  [[nodiscard]] const kernels::Linear& output() const { return *output_; }
  /// [draft_vocab] int32; null: the same ids.
  [[nodiscard]] const Vector& target_ids() const { return target_ids_; }

 private:
  Eagle3Config config_;
  DType compute_;
  std::size_t bytes_ = 0;
  std::unique_ptr<kernels::Linear> fc_;  ///< [hidden, features * target_hidden]
  std::vector<Vector> fc_norms_;
  LayerWeights layer_;
  Vector feature_norm_;                      ///< [hidden]
  Vector final_norm_;                        ///< [hidden]
  std::unique_ptr<kernels::Linear> output_;  ///< [draft_vocab, hidden]
  Vector target_ids_;
  std::unique_ptr<kernels::Embedding> embedding_;  ///< [vocab, hidden]
};

/// Bytes that SharedPacking::memory needs for a head; 0: this backend computes from memory of its
/// own.
[[nodiscard]] std::size_t packed_bytes(const kernels::Backend& backend, const Eagle3Config& config,
                                       DType compute);

/// Bytes that a head's packed matrices take.
[[nodiscard]] std::uint64_t weight_bytes(const Eagle3Config& config, DType compute);
/// Bytes of a row of its buffers, logits left out.
[[nodiscard]] std::uint64_t row_bytes(const Eagle3Config& config, DType compute);

/// Computes with a head, in buffers for its largest pass. Used by one thread.
class Eagle3Head {
 public:
  /// What a pass gives of its logit rows, in memory of the backend, valid until the next.
  struct Output {
    /// [logit rows, vocabulary of the target] fp32: -infinity for tokens that the head has not.
    const float* logits = nullptr;
    const float* features = nullptr;  ///< [logit rows, hidden] for rows that follow on them
  };

  /// `embedding`: the target's, of no account where the head has its own. `backend` must outlive
  /// the head. max_position: longest sequence.
  Eagle3Head(kernels::Backend& backend, std::shared_ptr<const Eagle3Weights> weights,
             std::shared_ptr<const kernels::Embedding> embedding, int max_rows, int max_logit_rows,
             int max_position);

  [[nodiscard]] kernels::KvShape kv_shape(int block) const;
  [[nodiscard]] const Eagle3Weights& weights() const { return *weights_; }
  [[nodiscard]] std::size_t activation_bytes() const { return activations_.bytes(); }
  /// Bytes of one row's features of the target: of the compute dtype, as Decoder::features().
  [[nodiscard]] std::size_t feature_bytes() const;

  /// Runs rows that follow on features of the target: [rows, feature_bytes()], in host memory.
  /// tokens: row i's is the token after that which the feature is of. cache: as kv_shape() says.
  Output forward(std::span<const std::byte> features, std::span<const TokenId> tokens,
                 std::span<const kernels::Segment> segments,
                 std::span<const std::int32_t> logit_rows, const kernels::KvShape& kv,
                 std::byte* cache);
  /// Runs rows that follow on the head's own: [rows, hidden], in host memory.
  Output forward(std::span<const float> features, std::span<const TokenId> tokens,
                 std::span<const kernels::Segment> segments,
                 std::span<const std::int32_t> logit_rows, const kernels::KvShape& kv,
                 std::byte* cache);

 private:
  Output run(kernels::Recording& recording, bool of_target, std::span<const TokenId> tokens,
             std::span<const kernels::Segment> segments, std::span<const std::int32_t> logit_rows,
             const kernels::KvShape& kv, std::byte* cache);
  void write_as_floats(std::span<const std::byte> features);
  void compute(kernels::Operations& operations, bool of_target);
  void norm_features(kernels::Operations& operations);
  void read_input(kernels::Operations& operations, bool of_target);

  kernels::Backend& backend_;
  std::shared_ptr<const Eagle3Weights> weights_;
  std::shared_ptr<const kernels::Embedding> embedding_;
  Shard shard_;
  Vector rope_;
  kernels::RopeTable rope_view_;
  std::unique_ptr<kernels::Recording> first_;  ///< of rows that follow on the target's features
  std::unique_ptr<kernels::Recording> next_;   ///< of the others

  Activations activations_;
  GroupedAttentionPass attention_;
  GatedMlpPass mlp_;
  // Rows as the backend pads them; bytes are values of the compute dtype.
  Activation<std::byte> target_features_;           ///< [max_rows, features * target_hidden]
  std::vector<Activation<float>> stored_features_;  ///< as fc_norms(): what they normalise
  Activation<float> part_normed_;                   ///< [max_rows, target_hidden]
  Activation<float> features_;                      ///< [max_rows, hidden]
  Activation<float> embedded_;                      ///< [max_rows, hidden]
  Activation<float> feature_normed_;                ///< [max_rows, hidden]
  Activation<float> delta_;                         ///< [max_rows, hidden]
  Activation<std::byte> input_;                     ///< [max_rows, 2 * hidden]
  Activation<std::byte> normed_;                    ///< [max_rows, hidden]
  Activation<std::byte> last_;                      ///< [max_logit_rows, hidden]
  Activation<float> last_features_;                 ///< [max_logit_rows, hidden]
  Activation<float> draft_logits_;                  ///< [max_logit_rows, draft_vocab]
  Activation<float> logits_;  ///< [max_logit_rows, vocab]; same ids: no memory
};

}  // namespace paceline::model
