// Layout of k and v in the pool: [block][layer][K, V][kv_head][position][head_dim] of kv.dtype, so
// that a block is one contiguous piece and a head's positions are rows; of latent vectors
// [block][layer][position][head_dim].
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.hpp"

namespace paceline::kernels::cuda {

/// KvShape as kernels use it; sizes in elements.
struct KvStrides {
  std::int64_t block = 0;
  std::int64_t layer = 0;
  std::int64_t value = 0;  ///< from a K to its V
  std::int64_t head = 0;
  int positions = 0;  ///< of a block
  int head_dim = 0;
};

inline KvStrides strides_of(const KvShape& kv) {
  const std::int64_t head = static_cast<std::int64_t>(kv.block) * kv.head_dim;
  const std::int64_t layer = head * kv.vectors();
  return {layer * kv.layers, layer, head * kv.kv_heads, head, kv.block, kv.head_dim};
}

/// Index of the K of layer 0 and head 0 at a slot, block * positions + offset.
#if defined(__CUDACC__)
__host__ __device__
#endif
    inline std::int64_t
    slot_element(const KvStrides& strides, std::int64_t slot) {
  return slot / strides.positions * strides.block + slot % strides.positions * strides.head_dim;
}

}  // namespace paceline::kernels::cuda
