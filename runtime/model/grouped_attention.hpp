// Grouped-query attention of one rank's heads, as operations of a pass.
#pragma once

#include <cstdint>

#include "kernels/backend.hpp"
#include "runtime/model/activations.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

/// Computes any layer of a model, in one set of buffers for its largest pass: layers run one after
/// another.
class GroupedAttentionPass {
 public:
  /// `max_rows`: as the backend pads them.
  GroupedAttentionPass(Activations& activations, const ModelConfig& config, const Shard& shard,
                       int max_rows, DType compute);

  /// Computes the attention of layer number `layer` on the pass's attended rows; row 0 of `input`
  /// and `delta` is the first of these. `input`: [rows, weights.qkv's inputs] of the compute dtype.
  /// `delta`: [rows, hidden] this rank's partial sums, without the bias.
  void compute(kernels::Operations& operations, const AttentionWeights& weights,
               const kernels::RopeTable& rope, int layer, const std::byte* input, float* delta);

  /// Stores the keys and values of the pass's rows in layer number `layer`, and computes no
  /// attention. `input`: as for compute().
  void store(kernels::Operations& operations, const AttentionWeights& weights,
             const kernels::RopeTable& rope, int layer, const std::byte* input);

  /// Bytes of one row of the buffers.
  [[nodiscard]] static std::uint64_t row_bytes(const ModelConfig& config, const Shard& shard,
                                               DType compute);

 private:
  [[nodiscard]] kernels::QkvParams params_of(const AttentionWeights& weights) const;

  kernels::QkvParams params_;
  Activation<float> qkv_;           ///< [max_rows, (heads + 2 kv_heads) * head_dim]
  Activation<std::byte> query_;     ///< [max_rows, heads * head_dim] of the compute dtype
  Activation<std::byte> attended_;  ///< as query_
};

}  // namespace paceline::model
