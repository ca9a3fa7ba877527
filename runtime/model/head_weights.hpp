// The weights of a head on a target as a backend computes with them, and their sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/head_config.hpp"
#include "runtime/core/weight_source.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

/// A head's weights, whole. Do not change once loaded.
class HeadWeights {
 public:
  /// `compute`: as of the target. `source`: the head's, which of a next-token layer is the model's,
  /// checked against `config`; needed while this is made, and as long as it is there where the head
  /// has embeddings of its own. With `shared` it packs a part, as Weights do, of packed_bytes().
  /// Throws DataError on weights that are NaN or infinite (of shared ones, in the part that it
  /// packs).
  HeadWeights(kernels::Backend& backend, const HeadConfig& config, const WeightSource& source,
              DType compute, const SharedPacking& shared = {});

  [[nodiscard]] const HeadConfig& config() const { return config_; }
  [[nodiscard]] DType compute() const { return compute_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< of all packed matrices

  [[nodiscard]] const kernels::Linear& fc() const { return *fc_; }
  [[nodiscard]] const LayerWeights& layer() const { return layer_; }
  /// As of HeadDescription; token_norm() may be null.
  [[nodiscard]] const Vector& token_norm() const { return token_norm_; }
  [[nodiscard]] const Vector& feature_norm() const { return feature_norm_; }
  /// Of the target's features: none, one of all of them, or one for each layer's.
  [[nodiscard]] const std::vector<Vector>& fc_norms() const { return fc_norms_; }
  /// Null: they are the target's.
  [[nodiscard]] const kernels::Embedding* embedding() const { return embedding_.get(); }
  [[nodiscard]] const Vector& final_norm() const { return final_norm_; }
  [[nodiscard]] const kernels::Linear& output() const { return *output_; }
  /// [draft_vocab()] int32 ids of the target; null: the same ids.
  [[nodiscard]] const Vector& target_ids() const { return target_ids_; }

 private:
  HeadConfig config_;
  DType compute_;
  std::size_t bytes_ = 0;
  std::unique_ptr<kernels::Linear> fc_;
  std::vector<Vector> fc_norms_;
  LayerWeights layer_;
  Vector token_norm_;                        ///< [hidden]
  Vector feature_norm_;                      ///< [hidden]
  Vector final_norm_;                        ///< [hidden]
  std::unique_ptr<kernels::Linear> output_;  ///< [draft_vocab(), hidden]
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
