// Multi-head latent attention of one rank's heads, as operations of a pass.
//
// Prefill, decode and trees have one arithmetic, the absorbed form: each head's query is projected
// into the space of latent vectors and attends there, and the weighted mean of latent vectors is
// projected to the head's values. Keys and values of heads are never formed. For thousands of rows
// of one prompt this takes up to four times the multiplications of attention with keys and values
// formed; but forming them would give other bits.
#pragma once

#include <cstdint>

#include "kernels/backend.hpp"
#include "runtime/model/activations.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

/// Computes any layer of a model, in one set of buffers for its largest pass: layers run one after
/// another.
class LatentAttentionPass {
 public:
  /// `max_rows`: as the backend pads them.
  LatentAttentionPass(Activations& activations, const ModelConfig& config, const Shard& shard,
                      int max_rows, DType compute);

  /// Computes one layer; parameters as for GroupedAttentionPass::compute().
  void compute(kernels::Operations& operations, const LatentWeights& weights,
               const kernels::RopeTable& rope, int layer, const std::byte* input, float* delta);

  /// Bytes of one row of the buffers.
  [[nodiscard]] static std::uint64_t row_bytes(const ModelConfig& config, const Shard& shard,
                                               DType compute);

 private:
  kernels::LatentParams params_;
  int q_rank_, value_dim_;
  DType compute_;
  // Bytes are values of the compute dtype. In a buffer "by head" each part of a pass has its own
  // piece, laid out as [heads, rows of the part, ...].
  Activation<float> q_down_;        ///< [max_rows, q_rank], where the model has it
  Activation<std::byte> q_normed_;  ///< as q_down_
  Activation<float> q_;             ///< [max_rows, heads * (nope + rope)]
  Activation<float> kv_;            ///< [max_rows, width]
  Activation<std::byte> nope_;      ///< by head: [max_rows, heads * nope]
  Activation<float> product_;       ///< [max_rows, rank or value_dim] of one head
  Activation<std::byte> query_;     ///< [max_rows, heads * width]
  Activation<std::byte> attended_;  ///< by head: [max_rows, heads * rank]
  Activation<std::byte> values_;    ///< [max_rows, heads * value_dim]
};

}  // namespace paceline::model
