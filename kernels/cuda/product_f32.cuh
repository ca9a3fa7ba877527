// The fp32 matrix product. See linear.hpp for the arithmetic.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/linear_plan.hpp"

namespace paceline::kernels::cuda {

// These kernels are for checks against other programs and for small models, not for speed. A lane
// computes one feature of kRowsPerWarp rows directly from global memory: the lanes of a warp read
// 128 bytes of weights and one element of each row at a time.
inline constexpr int kRowsPerWarp = 4;
inline constexpr int kProductWarps = 8;
inline constexpr int kProductLevels = 7;  ///< log2(kMaxLinearSegments) + 1

struct Product32Args {
  const float* weight;  ///< [tiles][k][32]
  const float* bias;    ///< [n] or null
  const float* in;      ///< [rows, k]
  void* out;            ///< see ProductArgs; in fp32
  int rows, n, k;
  int segments;
  bool gated;
};

/// Multiplies rows [first_row, first_row + kRowsPerWarp) that are below end_row by the features of
/// tile blockIdx.x, by one warp. matrix: see Product32Args::weight.
__device__ __forceinline__ void multiply_rows_f32(const Product32Args& args, const float* matrix,
                                                  int first_row, int end_row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (first_row >= end_row) return;
  const float* weight = matrix + static_cast<std::size_t>(blockIdx.x) * args.k * 32 + lane;
  const float* in[kRowsPerWarp];
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    in[r] = args.in + static_cast<std::size_t>(min(first_row + r, end_row - 1)) * args.k;
  }

  const int length = args.k / args.segments;
  float waiting[kProductLevels]
               [kRowsPerWarp];  // by level of the tree, until the neighbour's sum is there
  float sum[kRowsPerWarp];
  for (int segment = 0; segment < args.segments; ++segment) {
#pragma unroll
    for (float& x : sum) x = 0.0F;
    const int end = (segment + 1) * length;
    for (int first = segment * length; first < end; first += kChunk) {
      const int last = min(first + kChunk, end);
      float chain[kRowsPerWarp] = {};
#pragma unroll 4
      for (int i = first; i < last; ++i) {
        const float w = weight[static_cast<std::size_t>(i) * 32];
#pragma unroll
        for (int r = 0; r < kRowsPerWarp; ++r) chain[r] = __fmaf_rn(w, in[r][i], chain[r]);
      }
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) sum[r] += chain[r];
    }
    bool climbing = true;
#pragma unroll
    for (int level = 0; level < kProductLevels; ++level) {
      const bool neighbour = (segment >> level & 1) != 0;
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) {
        if (climbing && neighbour) {
          sum[r] = waiting[level][r] + sum[r];
        } else if (climbing) {
          waiting[level][r] = sum[r];
        }
      }
      climbing = climbing && neighbour;
    }
  }

  const int feature = static_cast<int>(blockIdx.x) * 32 + lane;
  const bool valid = feature < args.n;
  // If gates and ups alternate, even lanes write the result of their own value and their
  // neighbour's.
  const int width = args.gated ? args.n / 2 : args.n;
  const int column = args.gated ? feature / 2 : feature;
  const bool writes = valid && (!args.gated || lane % 2 == 0);
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    if (first_row + r >= end_row) return;
    float x = valid && args.bias != nullptr ? sum[r] + args.bias[feature] : sum[r];
    if (args.gated) x = swiglu_value(x, __shfl_xor_sync(kAllLanes, x, 1));
    if (writes) {
      static_cast<float*>(args.out)[static_cast<std::size_t>(first_row + r) * width + column] = x;
    }
  }
}

}  // namespace paceline::kernels::cuda
