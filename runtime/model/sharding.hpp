// Which part of each weight a rank of a tensor-parallel group holds.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/attention_layout.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::model {

/// Neighbouring rows or columns of a matrix.
struct Range {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// A rank's share of a model. Sides of matrices that are cut (Cut) are `size` neighbouring ranges;
/// of the vocabulary in steps of 64, so that shares are whole panels, or of 1 where it is too small
/// for that. Of a layer's experts a rank has neighbouring ones, whole. Of AttentionLayout::data all
/// matrices of attention are whole, and the others are cut as ever.
struct Shard {
  int rank = 0;
  int size = 1;
  AttentionLayout attention = AttentionLayout::tensor;  ///< of one rank tensor
  std::int32_t heads = 0, kv_heads = 0;                 ///< of this rank
  std::int32_t segments = 1;              ///< canonical segments this rank sums itself
  std::vector<std::int32_t> first_vocab;  ///< [size + 1] of every rank: rank r has [r, r + 1)

  /// The share of a layer's attention.
  [[nodiscard]] Shard of_attention() const;
  [[nodiscard]] std::int32_t vocab() const { return first_vocab[rank + 1] - first_vocab[rank]; }
  /// This rank's range of a side of `extent` elements.
  [[nodiscard]] Range range(Cut cut, std::int64_t extent) const;
  /// This rank's part of a matrix: its outputs and inputs.
  [[nodiscard]] std::int64_t outputs(const Projection& p) const {
    return range(p.output_cut, p.outputs).count;
  }
  [[nodiscard]] std::int64_t inputs(const Projection& p) const {
    return range(p.input_cut, p.inputs).count;
  }
};

/// Throws UsageError when `size` does not divide the model's canonical segments.
[[nodiscard]] Shard shard_of(const ModelConfig& config, int rank, int size,
                             AttentionLayout attention = AttentionLayout::tensor);
/// Ranks of a group of `size` that share the heads of attention, and so of KV.
[[nodiscard]] constexpr int attention_ranks(int size, AttentionLayout attention) {
  return attention == AttentionLayout::data ? 1 : size;
}

/// A rank's share of a matrix, or of several that are stacked.
struct PackedMatrix {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};
/// The matrices of a layer that a rank packs in a dtype, in order. Of kv_up (LatentAttention) each
/// head's keys, transposed, and values are matrices of their own, and the router is there
/// router_parts() times.
[[nodiscard]] std::vector<PackedMatrix> packed_matrices(const LayerDescription& layer,
                                                        const Shard& shard, DType compute);

/// Matrices that a router is packed as: of fp32 weights among bf16 ones three, whose sum has every
/// bit of it.
[[nodiscard]] inline int router_parts(bool wide_router, DType compute) {
  return wide_router && compute == DType::bf16 ? 3 : 1;
}

/// Elements that packing adds to a layer's own (matrix_elements(), whole_elements()): the further
/// parts of its router.
[[nodiscard]] std::int64_t added_elements(const LayerDescription& layer, DType compute);

/// The KV cache of one rank of `size` that share heads (attention_ranks()), in blocks of `block`
/// positions. `routing`: with the experts of each position, where the model has some.
[[nodiscard]] kernels::KvShape kv_shape(const ModelConfig& config, int size, int block,
                                        DType compute, bool routing = false);

/// Bytes of the packed weights one rank of `size` holds.
[[nodiscard]] std::uint64_t weight_bytes(const ModelConfig& config, DType compute, int size,
                                         AttentionLayout attention = AttentionLayout::tensor);
/// Those of them that every rank holds whole.
[[nodiscard]] std::uint64_t whole_weight_bytes(const ModelConfig& config, DType compute,
                                               AttentionLayout attention = AttentionLayout::tensor);

/// Bytes of the embeddings one rank of `size` holds besides, on a backend that copies them from
/// tensors of type `stored`: none where they are tied and the packed head has every bit of them.
[[nodiscard]] std::uint64_t embedding_bytes(const ModelConfig& config, DType stored, DType compute,
                                            int size);

}  // namespace paceline::model
