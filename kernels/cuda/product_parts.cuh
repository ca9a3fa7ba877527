// Common parts of the two kernels of the bf16 matrix product (product.cuh by warps,
// product_warpgroups.cuh by warpgroups): units of work, a thread's accumulators, and the places of
// finished sums.
//
// Segment sums that wait for their neighbour in the tree do not fit in registers. They go through
// L2, one for each level, and the thread that wrote one reads it back. For 192 x 128 tiles and 4
// segments this is 2 x 295 KB a tile, compared with 2.3 MB of operands at k = 3584 and 12 MB at k =
// 18944.
//
// If blocks share the segments of a tile (splits), each adds up its own, which are a branch of the
// tree, and stores one sum. The last block to arrive adds these sums in the order of the tree and
// writes the tile. No block waits for another, so any number of them may run at a time.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/linear_plan.hpp"
#include "kernels/cuda/segment_tree.cuh"

namespace paceline::kernels::cuda {

struct ProductArgs {
  const std::byte* weight;  ///< packed, see LinearLayout
  const float* bias;        ///< [n] or null
  const std::byte* in;      ///< [rows, k] bf16
  void* out;                ///< [rows, n] fp32; `gated`: [rows, n / 2] bf16
  unsigned* arrivals;       ///< [tiles]: number of blocks that have finished their share
  float4* waiting;          ///< [blocks][levels][quads][owners]: waiting segment sums
  float4* parts;            ///< [units][quads][owners]: sums of splits if there are several
  int rows, n, k;
  int segments, segment_length, segment_steps, segment_chunks;
  bool gated;                  ///< LinearLayout::gated
  unsigned chunks_reciprocal;  ///< ceil(2^32 / segment_chunks), for fewer than 2^16 chunks
  int weight_tiles;            ///< tiles of 16 features
  int feature_tiles;           ///< tiles of the block's shape
  int row_tiles;
  int splits;
  int levels;  ///< tree_levels() of the segments of a split
  int units;   ///< feature_tiles * row_tiles * splits
};

/// Number of row tiles that run at the same time before the next feature tile. Weights are then
/// read from memory once, and the grid's input stays in L2.
inline constexpr int kRasterRows = 16;

/// A unit of a block's work: a tile, or the block's part of one.
struct WorkUnit {
  int tile;          ///< index that does not count splits
  int feature_tile;  ///< counted in tiles of the block's shape
  int row_tile;
  int first_segment;

  __device__ static const std::byte* weight(const ProductArgs& args) { return args.weight; }
  template <class Shape>
  __device__ int first_row() const {
    return row_tile * Shape::kRows;
  }
  __device__ static int end_row(const ProductArgs& args) { return args.rows; }
};

/// The units of the product by one matrix. Other kinds of units must have the same members
/// (product_experts.cuh).
struct MatrixUnits {
  static constexpr bool kShared = true;  ///< blocks may share a tile

  __device__ static int count(const ProductArgs& args) { return args.units; }
  __device__ static WorkUnit unit(const ProductArgs& args, int index) {
    const int tile = index / args.splits;
    const int group = tile / (kRasterRows * args.feature_tiles);
    const int first = group * kRasterRows;
    const int height = min(kRasterRows, args.row_tiles - first);
    const int within = tile - first * args.feature_tiles;
    return {tile, within / height, first + within % height,
            index % args.splits * (args.segments / args.splits)};
  }
};

/// A thread's share of a tile: [quads][4], the D fragments of its warp's mma.
template <class Shape>
using Accumulators = float[Shape::kM][Shape::kN][4];

template <class Shape>
__device__ __forceinline__ void clear(Accumulators<Shape>& values) {
#pragma unroll
  for (int m = 0; m < Shape::kM; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[m][n][i] = 0.0F;
    }
  }
}

/// The position of a thread in its block.
template <class Shape>
struct Position {
  int lane, slice, warp_m, warp_n;
  int owner;  ///< index in the kOwners threads of its slice

  __device__ Position() {
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;
    lane = thread % 32;
    slice = warp / (Shape::kWarpsM * Shape::kWarpsN);
    warp_m = warp / Shape::kWarpsN % Shape::kWarpsM;
    warp_n = warp % Shape::kWarpsN;
    owner = thread % Shape::kOwners;
  }
};

/// Writes quad (m, n) of a thread: two neighbouring features of two neighbouring rows, or the
/// results of their gates and ups.
template <class Shape, class Unit>
__device__ __forceinline__ void write_quad(const ProductArgs& args, const Unit& unit,
                                           const Position<Shape>& position, int m, int n,
                                           float4 quad) {
  const int tile = unit.feature_tile * Shape::kFeatureTiles + position.warp_m * Shape::kM + m;
  const int feature = tile * 16 + position.lane / 4 * 2;
  const int first_row = unit.template first_row<Shape>() + (position.warp_n * Shape::kN + n) * 8 +
                        position.lane % 4 * 2;
  if (feature >= args.n) return;
  const bool both = feature + 1 < args.n;
  if (args.bias != nullptr) {
    const float lower = args.bias[feature];
    const float upper = both ? args.bias[feature + 1] : 0.0F;
    quad = make_float4(quad.x + lower, quad.y + lower, quad.z + upper, quad.w + upper);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (first_row + i >= unit.end_row(args)) return;
    const std::size_t at = static_cast<std::size_t>(first_row + i) * args.n + feature;
    const float2 pair = i == 0 ? make_float2(quad.x, quad.z) : make_float2(quad.y, quad.w);
    float* out = static_cast<float*>(args.out) + at;
    if (args.gated) {
      static_cast<__nv_bfloat16*>(args.out)[at / 2] =
          __float2bfloat16_rn(swiglu_value(pair.x, pair.y));
    } else if (args.n % 2 == 0) {
      *reinterpret_cast<float2*>(out) = pair;
    } else {
      out[0] = pair.x;
      if (both) out[1] = pair.y;
    }
  }
}

/// Returns the address of a thread's first quad in sum `index` of many in memory.
template <class Shape>
__device__ __forceinline__ float4* stored_sum(float4* sums, int index,
                                              const Position<Shape>& position) {
  return sums + static_cast<std::size_t>(index) * Shape::kQuads * Shape::kOwners + position.owner;
}

template <class Shape>
__device__ __forceinline__ void store_sum(float4* to, const Accumulators<Shape>& sum) {
#pragma unroll
  for (int m = 0; m < Shape::kM; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::kN; ++n) {
      __stcg(to + (m * Shape::kN + n) * Shape::kOwners,
             make_float4(sum[m][n][0], sum[m][n][1], sum[m][n][2], sum[m][n][3]));
    }
  }
}

/// Takes the sum of segment `segment` of the unit up the tree. It is added to the neighbours that
/// wait for it, and then waits itself. The last segment's sum then contains all the others, and
/// stays in `sum`.
template <class Shape>
__device__ __forceinline__ void climb(const ProductArgs& args, const Position<Shape>& position,
                                      int segment, Accumulators<Shape>& sum) {
  float4* const waiting =
      stored_sum<Shape>(args.waiting, static_cast<int>(blockIdx.x) * args.levels, position);
  constexpr int kLevel = Shape::kQuads * Shape::kOwners;
  int level = 0;
#pragma unroll 1
  for (; (segment >> level & 1) != 0; ++level) {
#pragma unroll
    for (int m = 0; m < Shape::kM; ++m) {
#pragma unroll
      for (int n = 0; n < Shape::kN; ++n) {
        const float4 left = __ldcg(waiting + level * kLevel + (m * Shape::kN + n) * Shape::kOwners);
        sum[m][n][0] = left.x + sum[m][n][0];
        sum[m][n][1] = left.y + sum[m][n][1];
        sum[m][n][2] = left.z + sum[m][n][2];
        sum[m][n][3] = left.w + sum[m][n][3];
      }
    }
  }
  if (level == args.levels) return;
  store_sum<Shape>(waiting + level * kLevel, sum);
  clear<Shape>(sum);
}

/// Writes the tile; the owners run it.
template <class Shape, class Unit>
__device__ __forceinline__ void write_sum(const ProductArgs& args, const Unit& unit,
                                          const Position<Shape>& position,
                                          const Accumulators<Shape>& sum) {
  if (position.slice != 0) return;
#pragma unroll
  for (int m = 0; m < Shape::kM; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::kN; ++n) {
      write_quad<Shape>(args, unit, position, m, n,
                        make_float4(sum[m][n][0], sum[m][n][1], sum[m][n][2], sum[m][n][3]));
    }
  }
}

/// Adds the sums of a tile's kSplits splits (2, 4, 8) and writes the tile; the owners run it. Eight
/// loads are in flight at a time, because later work may wait for the block that writes.
template <class Shape, int kSplits>
__device__ __forceinline__ void write_few_splits(const ProductArgs& args, const WorkUnit& unit,
                                                 const Position<Shape>& position,
                                                 const float4* parts) {
  constexpr int kAtOnce = Shape::kQuads < 8 / kSplits ? Shape::kQuads : 8 / kSplits;
  static_assert(Shape::kQuads % kAtOnce == 0);
#pragma unroll 1
  for (int q = 0; q < Shape::kQuads; q += kAtOnce) {
    float4 loaded[kAtOnce][kSplits];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int split = 0; split < kSplits; ++split) {
        loaded[i][split] = __ldcg(parts + (split * Shape::kQuads + q + i) * Shape::kOwners);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      float4 quad = add(loaded[i][0], loaded[i][1]);
      if constexpr (kSplits >= 4) quad = add(quad, add(loaded[i][2], loaded[i][3]));
      if constexpr (kSplits == 8) {
        quad = add(quad, add(add(loaded[i][4], loaded[i][5]), add(loaded[i][6], loaded[i][7])));
      }
      write_quad<Shape>(args, unit, position, (q + i) / Shape::kN, (q + i) % Shape::kN, quad);
    }
  }
}

/// Adds the sums of a tile's splits and writes the tile; the owners run it.
template <class Shape>
__device__ __forceinline__ void write_splits(const ProductArgs& args, const WorkUnit& unit,
                                             const Position<Shape>& position) {
  if (position.slice != 0) return;
  const float4* parts = stored_sum<Shape>(args.parts, unit.tile * args.splits, position);
  if (args.splits == 2) {
    write_few_splits<Shape, 2>(args, unit, position, parts);
    return;
  }
  if (args.splits == 4) {
    write_few_splits<Shape, 4>(args, unit, position, parts);
    return;
  }
  if (args.splits == 8) {
    write_few_splits<Shape, 8>(args, unit, position, parts);
    return;
  }
#pragma unroll 1
  for (int q = 0; q < Shape::kQuads; ++q) {
    const float4 quad = segment_tree(args.splits, [&](int split) {
      return __ldcg(parts + (static_cast<std::size_t>(split) * Shape::kQuads + q) * Shape::kOwners);
    });
    write_quad<Shape>(args, unit, position, q / Shape::kN, q % Shape::kN, quad);
  }
}

/// Returns true in all threads that hold sums if their block is the last to arrive of the blocks
/// that share the tile. It then sees the others' stores. `ticket`: shared memory. barrier: a
/// barrier of these threads.
template <class Barrier>
__device__ __forceinline__ bool last_to_arrive(const ProductArgs& args, const WorkUnit& unit,
                                               unsigned* ticket, const Barrier& barrier) {
  __threadfence();
  barrier();
  if (threadIdx.x == 0) {
    *ticket = atomicAdd(args.arrivals + unit.tile, 1U);
    if (*ticket == static_cast<unsigned>(args.splits) - 1) args.arrivals[unit.tile] = 0;
    __threadfence();
  }
  barrier();
  return *ticket == static_cast<unsigned>(args.splits) - 1;
}

}  // namespace paceline::kernels::cuda
