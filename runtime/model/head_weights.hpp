// Weights of a head on a target, in the form in which a backend computes with them, and their
// sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/head_config.hpp"
#include "runtime/core/weight_source.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

/// A head's weights, whole. They do not change once loaded.
class HeadWeights {
 public:
  /// `compute`: the target's compute dtype. `source`: the head's checkpoint (for a next-token layer
  /// the model's), which the caller has checked against `config`, with the target's output if the
  /// head has none. It must live during the call; if
  /// the head has embeddings of its own, it must outlive this object. `shared`: memory of
  /// packed_bytes(), of which this call packs a part, as for Weights. Throws DataError on weights
  /// that are NaN or infinite; with `shared`, only on those in the part that it packs.
  HeadWeights(kernels::Backend& backend, const HeadConfig& config, const WeightSource& source,
              DType compute, const SharedPacking& shared = {});

  [[nodiscard]] const HeadConfig& config() const { return config_; }
  [[nodiscard]] DType compute() const { return compute_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< bytes of all packed matrices

  [[nodiscard]] const kernels::Linear& fc() const { return *fc_; }
  [[nodiscard]] const std::vector<LayerWeights>& layers() const { return layers_; }
  /// Norms as in HeadDescription; token_norm() may be null.
  [[nodiscard]] const Vector& token_norm() const { return token_norm_; }
  [[nodiscard]] const Vector& feature_norm() const { return feature_norm_; }
  /// Norms of the target's features: none, one for all layers' features together, or one for each
  /// layer's.
  [[nodiscard]] const std::vector<Vector>& fc_norms() const { return fc_norms_; }
  /// The head's own embeddings; null: it reads the target's.
  [[nodiscard]] const kernels::Embedding* embedding() const { return embedding_.get(); }
  [[nodiscard]] const Vector& final_norm() const { return final_norm_; }
  [[nodiscard]] const kernels::Linear& output() const { return *output_; }
  /// The feature of rows that stand for tokens not yet said, as one of the target's: [feature
  /// width] of the compute dtype, in host memory. Empty: there is no mask_token().
  [[nodiscard]] std::span<const std::byte> mask_feature() const { return mask_feature_; }
  /// [draft_vocab()] the target's int32 ids of the head's tokens; null: ids are equal.
  [[nodiscard]] const Vector& target_ids() const { return target_ids_; }

 private:
  HeadConfig config_;
  DType compute_;
  std::size_t bytes_ = 0;
  std::unique_ptr<kernels::Linear> fc_;
  std::vector<Vector> fc_norms_;
  std::vector<LayerWeights> layers_;
  Vector token_norm_;                        ///< [hidden]
  Vector feature_norm_;                      ///< [hidden]
  Vector final_norm_;                        ///< [hidden]
  std::unique_ptr<kernels::Linear> output_;  ///< [draft_vocab(), hidden]
  std::vector<std::byte> mask_feature_;
  Vector target_ids_;
  std::unique_ptr<kernels::Embedding> embedding_;  ///< [vocab, hidden]
};

/// Bytes that SharedPacking::memory needs for a head; 0: this backend computes from memory of its
/// own.
[[nodiscard]] std::size_t packed_bytes(const kernels::Backend& backend, const HeadConfig& config,
                                       DType compute);

/// Bytes that a head's packed matrices take.
[[nodiscard]] std::uint64_t weight_bytes(const HeadConfig& config, DType compute);

}  // namespace paceline::model
