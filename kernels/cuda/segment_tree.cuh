// The sum over segments: one binary tree, neighbours first.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/linear_plan.hpp"

namespace paceline::kernels::cuda {

__device__ __forceinline__ float4 add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/// Sums segments in the tree. load(s): loads four sums of segment s from memory. segments: a power
/// of two, 4 to kMaxLinearSegments.
template <class Load>
__device__ __forceinline__ float4 segment_tree(int segments, const Load& load) {
  // Four loads are issued at a time. Their sums wait, by level, for the neighbour's sum.
  constexpr int kLevels = 5;  // log2(kMaxLinearSegments / 4) + 1
  static_assert(kMaxLinearSegments == 4 << (kLevels - 1));
  float4 waiting[kLevels] = {};  // written before it is read; initialising it saves registers
  float4 sum;
#pragma unroll 1
  for (int first = 0; first < segments; first += 4) {
    const float4 a = load(first);
    const float4 b = load(first + 1);
    const float4 c = load(first + 2);
    const float4 d = load(first + 3);
    sum = add(add(a, b), add(c, d));
    bool climbing = true;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      const bool neighbour = (first / 4 >> level & 1) != 0;
      if (climbing && neighbour) {
        sum = add(waiting[level], sum);
      } else if (climbing) {
        waiting[level] = sum;
      }
      climbing = climbing && neighbour;
    }
  }
  return sum;
}

}  // namespace paceline::kernels::cuda
