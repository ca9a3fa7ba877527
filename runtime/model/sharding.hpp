// The part of each weight that a rank of a tensor-parallel group holds.
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

/// A rank's share of a model. A side of a matrix that is cut (Cut) is cut into `size` neighbouring
/// ranges. Ranges of the vocabulary begin at multiples of 64, so that shares are whole panels; a
/// vocabulary too small for this is cut anywhere. Experts are not cut: a rank has neighbouring
/// experts, whole. With AttentionLayout::data all matrices of attention are whole, and the others
/// are cut as always.
struct Shard {
  int rank = 0;
  int size = 1;
  AttentionLayout attention = AttentionLayout::tensor;  ///< `tensor` for one rank
  std::int32_t heads = 0, kv_heads = 0;                 ///< heads on this rank
  std::int32_t segments = 1;              ///< canonical segments that this rank sums itself
  std::vector<std::int32_t> first_vocab;  ///< [size + 1] rank r has ids from r's to (r + 1)'s

  /// This rank's share of a layer's attention.
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

/// The share of rank `rank` of `size`. Throws UsageError where `size` does not divide the model's
/// canonical segments.
[[nodiscard]] Shard shard_of(const ModelConfig& config, int rank, int size,
                             AttentionLayout attention = AttentionLayout::tensor);
/// Number of ranks, in a group of `size`, among which attention's heads, and so their KV, are
/// divided.
[[nodiscard]] constexpr int attention_ranks(int size, AttentionLayout attention) {
  return attention == AttentionLayout::data ? 1 : size;
}

/// Size of a rank's share of a matrix, or of several stacked matrices.
struct PackedMatrix {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};
/// The matrices of a layer that a rank packs in a dtype, in order. kv_up (LatentAttention) is
/// packed as two matrices for each head, its keys, transposed, and its values; the router is packed
/// router_parts() times.
[[nodiscard]] std::vector<PackedMatrix> packed_matrices(const LayerDescription& layer,
                                                        const Shard& shard, DType compute);

/// Number of matrices that a router is packed as. In a bf16 model with an fp32 router there are
/// three bf16 matrices, whose sum has every bit of the router.
[[nodiscard]] inline int router_parts(bool wide_router, DType compute) {
  return wide_router && compute == DType::bf16 ? 3 : 1;
}

/// Elements that packing adds to a layer's own elements (matrix_elements(), whole_elements()): the
/// router's parts after the first.
[[nodiscard]] std::int64_t added_elements(const LayerDescription& layer, DType compute);

/// Shape of the KV cache of one rank, in blocks of `block` positions. `size`: number of ranks that
/// divide the heads (attention_ranks()). `routing`: the cache also holds the experts of each
/// position, where the model has experts.
[[nodiscard]] kernels::KvShape kv_shape(const ModelConfig& config, int size, int block,
                                        DType compute, bool routing = false);

/// Bytes of the packed weights that one rank of `size` holds.
[[nodiscard]] std::uint64_t weight_bytes(const ModelConfig& config, DType compute, int size,
                                         AttentionLayout attention = AttentionLayout::tensor);
/// Bytes of the packed weights that every rank holds whole.
[[nodiscard]] std::uint64_t whole_weight_bytes(const ModelConfig& config, DType compute,
                                               AttentionLayout attention = AttentionLayout::tensor);

/// Bytes of the embeddings that one rank of `size` holds in addition, on a backend that copies them
/// from tensors of type `stored`. 0 where they are tied and the packed head has all their bits.
[[nodiscard]] std::uint64_t embedding_bytes(const ModelConfig& config, DType stored, DType compute,
                                            int size);

}  // namespace paceline::model
