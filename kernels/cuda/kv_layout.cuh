// Layout of the pool: in each block [layer][K, V][kv_head][position][head_dim] of kv.dtype, or of
// latent vectors [layer][position][head_dim], followed by [position][routed] experts. So a block is
// one contiguous piece, and the positions of a head are rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.hpp"

namespace paceline::kernels::cuda {

/// KvShape in the form that kernels use, with sizes in elements.
struct KvStrides {
  std::int64_t block = 0;
  std::int64_t layer = 0;
  std::int64_t value = 0;  ///< distance from a K to its V
  std::int64_t head = 0;
  int positions = 0;  ///< positions of a block
  int head_dim = 0;
};

inline KvStrides strides_of(const KvShape& kv) {
  const std::int64_t head = static_cast<std::int64_t>(kv.block) * kv.head_dim;
  const std::int64_t layer = head * kv.vectors();
  const auto block = static_cast<std::int64_t>(kv.block_bytes() / size_of(kv.dtype));
  return {block, layer, head * kv.kv_heads, head, kv.block, kv.head_dim};
}

/// Returns the index of the K of layer 0 and head 0 at a slot, which is block * positions + offset.
#if defined(__CUDACC__)
__host__ __device__
#endif
    inline std::int64_t
    slot_element(const KvStrides& strides, std::int64_t slot) {
  return slot / strides.positions * strides.block + slot % strides.positions * strides.head_dim;
}

/// The place of positions' experts in the pool, for kernels.
struct RoutingPlaces {
  std::byte* cache = nullptr;
  std::int64_t block_bytes = 0;
  std::int64_t offset = 0;  ///< offset in a block
  int positions = 0;        ///< positions of a block
  int routed = 0;
};

inline RoutingPlaces routing_places(const KvShape& kv, std::byte* cache) {
  return {cache, static_cast<std::int64_t>(kv.block_bytes()),
          static_cast<std::int64_t>(kv.routing_offset()), kv.block, kv.routed};
}

/// Returns the experts of the position at a slot of a block: [routed].
#if defined(__CUDACC__)
__host__ __device__
#endif
    inline std::int16_t*
    routing_of(const RoutingPlaces& places, std::int64_t block, std::int64_t slot) {
  return reinterpret_cast<std::int16_t*>(places.cache + block * places.block_bytes +
                                         places.offset) +
         slot * places.routed;
}

}  // namespace paceline::kernels::cuda
