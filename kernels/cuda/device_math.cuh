// Common parts of the row-wise kernels: reduction trees of fixed order, and access to four elements
// at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace paceline::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;
inline constexpr int kWarp = 32;

/// Returns the sum over a warp, in every lane. Lanes 16 apart are added first, neighbours last.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}

/// Returns the sum over a block, in every thread: first over each warp, then over the warps' sums.
/// The block has a multiple of 32 threads. sums: [32] in shared memory, which may be used again
/// after a barrier.
__device__ __forceinline__ float block_sum(float x, float* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  x = warp_sum(x);
  if (lane == 0) sums[warp] = x;
  __syncthreads();
  return warp_sum(lane < static_cast<int>(blockDim.x) / kWarp ? sums[lane] : 0.0F);
}

/// Loads elements [0, count) of four; the others are 0. `aligned`: all four exist, and their
/// address is a multiple of their size.
template <bool aligned>
__device__ __forceinline__ void load4(const float* from, int count, float (&x)[4]) {
  if constexpr (aligned) {
    const float4 all = *reinterpret_cast<const float4*>(from);
    x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = i < count ? from[i] : 0.0F;
  }
}
template <bool aligned>
__device__ __forceinline__ void load4(const __nv_bfloat16* from, int count, float (&x)[4]) {
  if constexpr (aligned) {
    const uint2 all = *reinterpret_cast<const uint2*>(from);
    x[0] = __uint_as_float(all.x << 16), x[1] = __uint_as_float(all.x & 0xFFFF0000U);
    x[2] = __uint_as_float(all.y << 16), x[3] = __uint_as_float(all.y & 0xFFFF0000U);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = i < count ? __bfloat162float(from[i]) : 0.0F;
  }
}

template <bool aligned>
__device__ __forceinline__ void store4(float* to, int count, const float (&x)[4]) {
  if constexpr (aligned) {
    *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < count) to[i] = x[i];
    }
  }
}
template <bool aligned>
__device__ __forceinline__ void store4(__nv_bfloat16* to, int count, const float (&x)[4]) {
  if constexpr (aligned) {
    const auto half = [](float value) {
      return static_cast<std::uint32_t>(__bfloat16_as_ushort(__float2bfloat16_rn(value)));
    };
    *reinterpret_cast<uint2*>(to) =
        make_uint2(half(x[0]) | half(x[1]) << 16, half(x[2]) | half(x[3]) << 16);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < count) to[i] = __float2bfloat16_rn(x[i]);
    }
  }
}

/// Returns whether all rows of `width` elements at these addresses can be read and written four
/// elements at a time.
template <class... Pointers>
[[nodiscard]] bool fours_aligned(int width, const Pointers*... rows) {
  const auto aligned = [](const auto* p) {
    return reinterpret_cast<std::uintptr_t>(p) % (4 * sizeof(*p)) == 0;
  };
  return width % 4 == 0 && (aligned(rows) && ...);
}

}  // namespace paceline::kernels::cuda
