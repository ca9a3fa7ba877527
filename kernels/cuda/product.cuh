// The bf16 matrix product on tensor cores, for every tile shape. See linear.hpp for the arithmetic
// and linear_plan.hpp for the layouts.
//
// A block walks over its tiles as one sequence of stages (kStageSteps steps of each chunk at work),
// so that copies of the next tile are under way while the last one is finished. Weights are copied
// fragment by fragment, input rows 128 bytes at a time with their 16-byte pieces permuted by row,
// so that ldmatrix finds the eight rows of a matrix in different banks.
//
// The chain of a chunk stays in `chain`, the sum of a segment in `sum`: a second set of registers
// and one addition for every 16 mma, where partial sums in shared memory would cost 8 bytes of its
// traffic for each. Segment sums that wait for their neighbour in the tree do not fit in registers
// as well: they go through L2, one for each level, and the thread that wrote one reads it back. For
// 192 x 128 tiles and 4 segments this is 2 x 295 KB a tile beside 2.3 MB of operands at k = 3584
// and 12 MB at k = 18944.
//
// Where blocks share the segments of a tile (splits), each adds up its own, which are a branch of
// the tree, and leaves one sum; the last block to arrive adds these in the order of the tree and
// writes the tile. Nobody waits, so any number of them may run at a time.
//
// Warpgroups (wgmma) take the same stages: a warp's fragments of the weight are its registers of A,
// and the permuted rows are in the hardware's 128-byte swizzle. Their instructions are as deep, 16
// elements of k, so the chain is the same; its bits are the same if wgmma adds the 16 products and
// the accumulator as mma does (LinearDevice::warpgroups). They run asynchronously, one step ahead,
// so a stage is free for copies only once the next one is done.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/linear_plan.hpp"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/segment_tree.cuh"

namespace paceline::kernels::cuda {

struct ProductArgs {
  const std::byte* weight;  ///< packed, see LinearLayout
  const float* bias;        ///< [n] or null
  const std::byte* in;      ///< [rows, k] bf16
  void* out;                ///< [rows, n] fp32; `gated`: [rows, n / 2] bf16
  unsigned* arrivals;       ///< [tiles]: blocks that have finished their share of a tile
  float4* waiting;          ///< [blocks][levels][quads][owners]: waiting segment sums
  float4* parts;            ///< [units][quads][owners]: sums of splits, if there are several
  int rows, n, k;
  int segments, segment_length, segment_steps, segment_chunks;
  bool gated;                  ///< LinearLayout::gated
  unsigned chunks_reciprocal;  ///< ceil(2^32 / segment_chunks), for fewer than 2^16 chunks
  int weight_tiles;            ///< of 16 features
  int feature_tiles;           ///< of the block's shape
  int row_tiles;
  int splits;
  int levels;  ///< tree_levels() of the segments of a split
  int units;   ///< feature_tiles * row_tiles * splits
};

/// Row tiles that run beside each other before the next feature tile: weights are then read from
/// memory once, and the grid's input stays in L2.
inline constexpr int kRasterRows = 16;

/// A unit of a block's work: a tile, or its part of one.
struct WorkUnit {
  int tile;          ///< without the split
  int feature_tile;  ///< of the block's shape
  int row_tile;
  int first_segment;
};

__device__ __forceinline__ WorkUnit unit_of(const ProductArgs& args, int index) {
  const int tile = index / args.splits;
  const int group = tile / (kRasterRows * args.feature_tiles);
  const int first = group * kRasterRows;
  const int height = min(kRasterRows, args.row_tiles - first);
  const int within = tile - first * args.feature_tiles;
  return {tile, within / height, first + within % height,
          index % args.splits * (args.segments / args.splits)};
}

/// Part `part` of a chunk: its steps within its segment.
struct Part {
  int segment;
  int first_step;
  int steps;  ///< none, or fewer than none, past the last chunk
};

/// The segment of the unit that a chunk belongs to.
__device__ __forceinline__ int segment_of(const ProductArgs& args, int chunk) {
  return args.segment_chunks == 1
             ? chunk
             : static_cast<int>(__umulhi(static_cast<unsigned>(chunk), args.chunks_reciprocal));
}

/// The part of a chunk. chunk: counted from the first segment of the unit. Steps are not raised to
/// zero: from "max(0, min(left, 4)) == 4" ptxas 13.0 makes one VIMNMX.RELU whose predicate is also
/// true where nothing is left, so that a device multiplied stages that had not been loaded.
__device__ __forceinline__ Part part_of(const ProductArgs& args, const WorkUnit& unit, int chunk,
                                        int part) {
  const int segment = segment_of(args, chunk);
  const int step = (chunk - segment * args.segment_chunks) * kChunkSteps + part * kStageSteps;
  const int left = segment < args.segments / args.splits ? args.segment_steps - step : 0;
  return {unit.first_segment + segment, step, min(left, kStageSteps)};
}

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

/// Position of a thread in its block.
template <class Shape>
struct Position {
  int lane, slice, warp_m, warp_n;
  int owner;  ///< index among the kOwners threads of its slice

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

/// Starts the copies of a stage: part `part` of the chunk that the thread's slice has at work. Each
/// slice copies for itself.
template <class Shape>
__device__ __forceinline__ void load_stage(const ProductArgs& args, const WorkUnit& unit,
                                           const Position<Shape>& position, int chunk, int part,
                                           std::byte* stage) {
  const Part at = part_of(args, unit, chunk, part);
  if (at.steps <= 0) return;  // missing steps are never read
  const int owner = position.owner;

  constexpr int kTileVectors = kStageSteps * 32;  // 16 bytes each
  constexpr int kTilesAtOnce = Shape::kOwners > kTileVectors ? Shape::kOwners / kTileVectors : 1;
  constexpr int kPasses = Shape::kOwners < kTileVectors ? kTileVectors / Shape::kOwners : 1;
  const int of_tile = owner % kTileVectors;
  int tile = unit.feature_tile * Shape::kFeatureTiles + owner / kTileVectors;
  const std::size_t tile_bytes = static_cast<std::size_t>(args.segments * args.segment_steps) * 512;
  const std::byte* from =
      args.weight + tile * tile_bytes + of_tile * 16 +
      static_cast<std::size_t>(at.segment * args.segment_steps + at.first_step) * 512;
  std::byte* to = stage + (position.slice * Shape::kFeatureTiles * kTileVectors + owner) * 16;
#pragma unroll
  for (int first = 0; first < Shape::kFeatureTiles; first += kTilesAtOnce) {
    const bool valid = tile < args.weight_tiles;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      constexpr int kPassBytes = Shape::kOwners * 16;
      if ((of_tile + pass * Shape::kOwners) / 32 < at.steps) {
        cp_async_16(to + pass * kPassBytes, valid ? from + pass * kPassBytes : args.weight, valid);
      }
    }
    tile += kTilesAtOnce;
    from += kTilesAtOnce * tile_bytes;
    to += kTilesAtOnce * kTileVectors * 16;
  }

  constexpr int kPieces = kStageSteps * kStep / 8;  // of a row, 16 bytes each
  constexpr int kRowsAtOnce = Shape::kOwners / kPieces;
  const int piece = owner % kPieces;
  const int element = at.first_step * kStep + piece * 8;  // of the segment
  if (piece / 2 >= at.steps) return;
  int row = owner / kPieces;  // of the tile
  int input_row = unit.row_tile * Shape::kRows + row;
  const std::size_t row_bytes = static_cast<std::size_t>(args.k) * 2;
  const std::byte* row_from =
      args.in + input_row * row_bytes + (at.segment * args.segment_length + element) * 2;
  std::byte* inputs = stage + Shape::kWeightBytes +
                      position.slice * Shape::kRows * kPieces * 16;  // [rows][pieces][16]
  const bool aligned = args.segment_length % 8 == 0;
#pragma unroll
  for (int first = 0; first < Shape::kRows; first += kRowsAtOnce) {
    if (Shape::kRows % kRowsAtOnce != 0 && row >= Shape::kRows) return;
    const bool valid = input_row < args.rows && element < args.segment_length;
    std::byte* piece_to = inputs + (row * kPieces + (piece ^ (row % 8))) * 16;
    if (aligned) {
      cp_async_16(piece_to, valid ? row_from : args.in, valid);
    } else {
      // Segments that are no multiple of 16 bytes are copied by pairs, as many as the segment has.
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pairs[i] = valid && element + 2 * i < args.segment_length
                       ? reinterpret_cast<const unsigned*>(row_from)[i]
                       : 0U;
      }
      *reinterpret_cast<uint4*>(piece_to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    row += kRowsAtOnce;
    input_row += kRowsAtOnce;
    row_from += kRowsAtOnce * row_bytes;
  }
}

/// Takes one step of every chain of the warp.
template <class Shape>
__device__ __forceinline__ void multiply_step(const std::byte* a_base, const std::byte* b_base,
                                              int lane, int step, Accumulators<Shape>& chain) {
  std::uint32_t b[Shape::kN][2];
  if constexpr (Shape::kN == 1) {
    ldmatrix_x2(b[0], b_base + ((step * 2 + lane / 8 % 2) ^ (lane % 8)) * 16);
  } else {
#pragma unroll
    for (int n = 0; n < Shape::kN; n += 2) {
      std::uint32_t registers[4];
      ldmatrix_x4(registers, b_base + (n * 64 + ((step * 2 + lane / 8 % 2) ^ (lane % 8))) * 16);
      b[n][0] = registers[0];
      b[n][1] = registers[1];
      b[n + 1][0] = registers[2];
      b[n + 1][1] = registers[3];
    }
  }
#pragma unroll
  for (int m = 0; m < Shape::kM; ++m) {
    const uint4 registers =
        *reinterpret_cast<const uint4*>(a_base + (m * kStageSteps + step) * 512);
    const std::uint32_t a[4] = {registers.x, registers.y, registers.z, registers.w};
#pragma unroll
    for (int n = 0; n < Shape::kN; ++n) mma_bf16_16816(chain[m][n], a, b[n]);
  }
}

template <class Shape>
__device__ __forceinline__ void multiply_stage(const std::byte* stage,
                                               const Position<Shape>& position, int steps,
                                               Accumulators<Shape>& chain) {
  const int lane = position.lane;
  const std::byte* a_base =
      stage +
      ((position.slice * Shape::kFeatureTiles + position.warp_m * Shape::kM) * kStageSteps * 32 +
       lane) *
          16;
  // Lanes 8 i to 8 i + 7 point at the rows of matrix i: of row tiles n and n + 1, the lower and the
  // upper half of a step each.
  const int row = position.warp_n * Shape::kN * 8 + (Shape::kN == 1 ? 0 : lane / 16 * 8) + lane % 8;
  const std::byte* b_base =
      stage + Shape::kWeightBytes + (position.slice * Shape::kRows + row) * (kStageSteps * 32);
  if (steps == kStageSteps) {
#pragma unroll
    for (int step = 0; step < kStageSteps; ++step) {
      multiply_step<Shape>(a_base, b_base, lane, step, chain);
    }
  } else {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      multiply_step<Shape>(a_base, b_base, lane, step, chain);
    }
  }
}

/// Weight fragments that wgmma may still be reading: of even and of odd steps.
template <class Shape>
using WeightFragments = std::uint32_t[2][Shape::kM][4];

/// Multiplies a stage by warpgroups. The last step may still run afterwards: the chain and the
/// fragments of odd steps must not be touched then.
template <class Shape>
__device__ __forceinline__ void multiply_stage_async(const std::byte* stage,
                                                     const Position<Shape>& position, int steps,
                                                     WeightFragments<Shape>& fragments,
                                                     Accumulators<Shape>& chain) {
  const std::byte* a_base =
      stage +
      ((position.slice * Shape::kFeatureTiles + position.warp_m * Shape::kM) * kStageSteps * 32 +
       position.lane) *
          16;
  const std::byte* rows =
      stage + Shape::kWeightBytes + position.slice * Shape::kRows * (kStageSteps * 32);
  const auto multiply = [&](int step, std::uint32_t(&a)[Shape::kM][4]) {
#pragma unroll
    for (int m = 0; m < Shape::kM; ++m) {
      const uint4 registers =
          *reinterpret_cast<const uint4*>(a_base + (m * kStageSteps + step) * 512);
      a[m][0] = registers.x;
      a[m][1] = registers.y;
      a[m][2] = registers.z;
      a[m][3] = registers.w;
    }
    wgmma_begin();
#pragma unroll
    for (int m = 0; m < Shape::kM; ++m) wgmma_bf16<Shape::kN>(chain[m], a[m], rows, step);
    wgmma_commit();
  };
  if (steps == kStageSteps) {
#pragma unroll
    for (int step = 0; step < kStageSteps; ++step) {
      multiply(step, fragments[step % 2]);
      wgmma_wait<1>();
    }
  } else {
    wgmma_wait<0>();  // without steps too: the stage before is free after the next barrier
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      multiply(step, fragments[0]);
      wgmma_wait<0>();
    }
  }
}

/// Writes quad (m, n) of a thread: two neighbouring features of two neighbouring rows, or the
/// results of gate and up.
template <class Shape>
__device__ __forceinline__ void write_quad(const ProductArgs& args, const WorkUnit& unit,
                                           const Position<Shape>& position, int m, int n,
                                           float4 quad) {
  const int tile = unit.feature_tile * Shape::kFeatureTiles + position.warp_m * Shape::kM + m;
  const int feature = tile * 16 + position.lane / 4 * 2;
  const int first_row =
      unit.row_tile * Shape::kRows + (position.warp_n * Shape::kN + n) * 8 + position.lane % 4 * 2;
  if (feature >= args.n) return;
  const bool both = feature + 1 < args.n;
  if (args.bias != nullptr) {
    const float lower = args.bias[feature];
    const float upper = both ? args.bias[feature + 1] : 0.0F;
    quad = make_float4(quad.x + lower, quad.y + lower, quad.z + upper, quad.w + upper);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (first_row + i >= args.rows) return;
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

/// A thread's first quad of sum `index` among many in memory.
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

/// Takes the sum of segment `segment` of the unit up the tree: it joins the neighbours that wait
/// for it, and then waits itself. The last segment's sum contains all the others, and stays.
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

/// Writes the tile, by the owners.
template <class Shape>
__device__ __forceinline__ void write_sum(const ProductArgs& args, const WorkUnit& unit,
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

/// Adds the sums of a tile's splits and writes the tile, by the owners.
template <class Shape>
__device__ __forceinline__ void write_splits(const ProductArgs& args, const WorkUnit& unit,
                                             const Position<Shape>& position) {
  if (position.slice != 0) return;
  const float4* parts = stored_sum<Shape>(args.parts, unit.tile * args.splits, position);
#pragma unroll 1
  for (int q = 0; q < Shape::kQuads; ++q) {
    const float4 quad = segment_tree(args.splits, [&](int split) {
      return __ldcg(parts + (static_cast<std::size_t>(split) * Shape::kQuads + q) * Shape::kOwners);
    });
    write_quad<Shape>(args, unit, position, q / Shape::kN, q % Shape::kN, quad);
  }
}

/// Returns true in all threads of the block that is the last of those that share the tile, which
/// then sees the others' stores. `ticket`: shared memory.
__device__ __forceinline__ bool last_to_arrive(const ProductArgs& args, const WorkUnit& unit,
                                               unsigned* ticket) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    *ticket = atomicAdd(args.arrivals + unit.tile, 1U);
    if (*ticket == static_cast<unsigned>(args.splits) - 1) args.arrivals[unit.tile] = 0;
    __threadfence();
  }
  __syncthreads();
  return *ticket == static_cast<unsigned>(args.splits) - 1;
}

/// Adds the slices' finished chunks, first_chunk first, to `sum` in ascending order; a complete
/// segment goes up the tree.
template <class Shape>
__device__ __forceinline__ void fold(const ProductArgs& args, const Position<Shape>& position,
                                     int first_chunk, float4* exchange,
                                     const Accumulators<Shape>& chain, Accumulators<Shape>& sum) {
  if constexpr (Shape::kSlices > 1) {
    if (position.slice > 0) {
#pragma unroll
      for (int m = 0; m < Shape::kM; ++m) {
#pragma unroll
        for (int n = 0; n < Shape::kN; ++n) {
          exchange[((position.slice - 1) * Shape::kQuads + m * Shape::kN + n) * Shape::kOwners +
                   position.owner] =
              make_float4(chain[m][n][0], chain[m][n][1], chain[m][n][2], chain[m][n][3]);
        }
      }
    }
    // The barriers of the next stages keep the next round from overwriting data that is read here.
    __syncthreads();
    if (position.slice > 0) return;
  }
  const int chunks = args.segments / args.splits * args.segment_chunks;
#pragma unroll 1
  for (int slice = 0; slice < Shape::kSlices; ++slice) {
    const int chunk = first_chunk + slice;
    if (chunk >= chunks) return;
    const int segment = segment_of(args, chunk);
    const int within = chunk - segment * args.segment_chunks;
#pragma unroll
    for (int m = 0; m < Shape::kM; ++m) {
#pragma unroll
      for (int n = 0; n < Shape::kN; ++n) {
        float4 quad = make_float4(chain[m][n][0], chain[m][n][1], chain[m][n][2], chain[m][n][3]);
        if (Shape::kSlices > 1 && slice > 0) {
          quad = exchange[((slice - 1) * Shape::kQuads + m * Shape::kN + n) * Shape::kOwners +
                          position.owner];
        }
        sum[m][n][0] += quad.x;
        sum[m][n][1] += quad.y;
        sum[m][n][2] += quad.z;
        sum[m][n][3] += quad.w;
      }
    }
    if (within == args.segment_chunks - 1) climb<Shape>(args, position, segment, sum);
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks) product(const ProductArgs args) {
  std::byte* const stages = dynamic_shared();
  auto* const exchange = reinterpret_cast<float4*>(stages + Shape::kStages * Shape::kStageBytes);
  auto* const ticket = reinterpret_cast<unsigned*>(stages + Shape::kStages * Shape::kStageBytes +
                                                   Shape::kExchangeBytes);
  const Position<Shape> position;
  const int chunks = args.segments / args.splits * args.segment_chunks;
  const int rounded = (chunks + Shape::kSlices - 1) / Shape::kSlices * Shape::kSlices;
  const int stride = static_cast<int>(gridDim.x);

  // The next copy runs so many stages ahead:
  constexpr int kAhead = Shape::kStages - Shape::kStagesAtWork;
  int copy_index = static_cast<int>(blockIdx.x);
  int copy_chunk = 0;
  int copy_part = 0;
  WorkUnit copy_unit = unit_of(args, copy_index);
  const auto copy_next = [&](int slot) {
    if (copy_index < args.units) {
      load_stage<Shape>(args, copy_unit, position, copy_chunk + position.slice, copy_part,
                        stages + slot * Shape::kStageBytes);
      if (++copy_part == kStagesPerChunk) {
        copy_part = 0;
        copy_chunk += Shape::kSlices;
        if (copy_chunk == rounded) {
          copy_chunk = 0;
          copy_index += stride;
          if (copy_index < args.units) copy_unit = unit_of(args, copy_index);
        }
      }
    }
    cp_async_commit();
  };
  for (int slot = 0; slot < kAhead; ++slot) copy_next(slot);

  int slot = 0;
  int free_slot = kAhead;
  [[maybe_unused]] WeightFragments<Shape> fragments;
  Accumulators<Shape> chain;
  Accumulators<Shape> sum;
  for (int index = static_cast<int>(blockIdx.x); index < args.units; index += stride) {
    const WorkUnit unit = unit_of(args, index);
    clear<Shape>(sum);
    for (int first_chunk = 0; first_chunk < rounded; first_chunk += Shape::kSlices) {
      clear<Shape>(chain);
#pragma unroll 1
      for (int part = 0; part < kStagesPerChunk; ++part) {
        cp_async_wait<kAhead - 1>();
        if constexpr (Shape::kWarpgroups) fence_shared_for_wgmma();
        // After the barrier all copies of this stage have come, and all threads are done with the
        // stage before, or the one before that.
        __syncthreads();
        copy_next(free_slot);
        const int steps = part_of(args, unit, first_chunk + position.slice, part).steps;
        const std::byte* stage = stages + slot * Shape::kStageBytes;
        if constexpr (Shape::kWarpgroups) {
          multiply_stage_async<Shape>(stage, position, steps, fragments, chain);
        } else {
          multiply_stage<Shape>(stage, position, steps, chain);
        }
        free_slot = free_slot + 1 == Shape::kStages ? 0 : free_slot + 1;
        slot = slot + 1 == Shape::kStages ? 0 : slot + 1;
      }
      if constexpr (Shape::kWarpgroups) {
        wgmma_wait<0>();
#pragma unroll
        for (int m = 0; m < Shape::kM; ++m) wgmma_settle(chain[m]);
      }
      fold<Shape>(args, position, first_chunk, exchange, chain, sum);
    }
    if (args.splits == 1) {
      write_sum<Shape>(args, unit, position, sum);
      continue;
    }
    if (position.slice == 0) {
      store_sum<Shape>(stored_sum<Shape>(args.parts, index, position), sum);
    }
    if (last_to_arrive(args, unit, ticket)) write_splits<Shape>(args, unit, position);
  }
}

}  // namespace paceline::kernels::cuda
