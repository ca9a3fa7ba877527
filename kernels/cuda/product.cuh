// The bf16 matrix product by warps (mma). See linear.hpp for the arithmetic and linear_plan.hpp for
// the layouts.
//
// A block walks over its tiles as one sequence of stages (kStageSteps steps of each chunk in
// progress), so that copies for the next tile are in flight while the block finishes the last one.
// Weights are copied fragment by fragment, input rows 128 bytes at a time. Their 16-byte pieces are
// permuted by row, so that ldmatrix reads the eight rows of a matrix from different banks.
//
// The chain of a chunk stays in `chain`, the sum of a segment in `sum`. This takes a second set of
// registers and one addition for every 16 mma. Partial sums in shared memory would cost 8 bytes of
// its traffic for each addition.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/product_parts.cuh"
#include "kernels/cuda/ptx.cuh"

namespace paceline::kernels::cuda {

/// Part `part` of a chunk, by its steps within the segment.
struct Part {
  int segment;
  int first_step;
  int steps;  ///< zero or negative past the last chunk
};

/// Returns the segment of the unit to which a chunk belongs.
__device__ __forceinline__ int segment_of(const ProductArgs& args, int chunk) {
  return args.segment_chunks == 1
             ? chunk
             : static_cast<int>(__umulhi(static_cast<unsigned>(chunk), args.chunks_reciprocal));
}

/// Returns part `part` of a chunk. chunk: counted from the first segment of the unit. Negative
/// steps are not raised to zero: from "max(0, min(left, 4)) == 4" ptxas 13.0 makes one VIMNMX.RELU
/// whose predicate is also true if nothing is left. A device then multiplied stages that had not
/// been loaded.
template <class Unit>
__device__ __forceinline__ Part part_of(const ProductArgs& args, const Unit& unit, int chunk,
                                        int part) {
  const int segment = segment_of(args, chunk);
  const int step = (chunk - segment * args.segment_chunks) * kChunkSteps + part * kStageSteps;
  const int left = segment < args.segments / args.splits ? args.segment_steps - step : 0;
  return {unit.first_segment + segment, step, min(left, kStageSteps)};
}

/// Starts the copies of a stage: part `part` of the current chunk of the thread's slice. Each slice
/// copies for itself.
template <class Shape, class Unit>
__device__ __forceinline__ void load_stage(const ProductArgs& args, const Unit& unit,
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
      unit.weight(args) + tile * tile_bytes + of_tile * 16 +
      static_cast<std::size_t>(at.segment * args.segment_steps + at.first_step) * 512;
  std::byte* to = stage + (position.slice * Shape::kFeatureTiles * kTileVectors + owner) * 16;
#pragma unroll
  for (int first = 0; first < Shape::kFeatureTiles; first += kTilesAtOnce) {
    const bool valid = tile < args.weight_tiles;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      constexpr int kPassBytes = Shape::kOwners * 16;
      if ((of_tile + pass * Shape::kOwners) / 32 < at.steps) {
        cp_async_16(to + pass * kPassBytes, valid ? from + pass * kPassBytes : unit.weight(args),
                    valid);
      }
    }
    tile += kTilesAtOnce;
    from += kTilesAtOnce * tile_bytes;
    to += kTilesAtOnce * kTileVectors * 16;
  }

  constexpr int kPieces = kStageSteps * kStep / 8;  // pieces of a row, 16 bytes each
  constexpr int kRowsAtOnce = Shape::kOwners / kPieces;
  const int piece = owner % kPieces;
  const int element = at.first_step * kStep + piece * 8;  // element in the segment
  if (piece / 2 >= at.steps) return;
  int row = owner / kPieces;  // row in the tile
  int input_row = unit.template first_row<Shape>() + row;
  const std::size_t row_bytes = static_cast<std::size_t>(args.k) * 2;
  const std::byte* row_from =
      args.in + input_row * row_bytes + (at.segment * args.segment_length + element) * 2;
  std::byte* inputs = stage + Shape::kWeightBytes +
                      position.slice * Shape::kRows * kPieces * 16;  // [rows][pieces][16]
  const bool aligned = args.segment_length % 8 == 0;
#pragma unroll
  for (int first = 0; first < Shape::kRows; first += kRowsAtOnce) {
    if (Shape::kRows % kRowsAtOnce != 0 && row >= Shape::kRows) return;
    const bool valid = input_row < unit.end_row(args) && element < args.segment_length;
    std::byte* piece_to = inputs + (row * kPieces + (piece ^ (row % 8))) * 16;
    if (aligned) {
      cp_async_16(piece_to, valid ? row_from : args.in, valid);
    } else {
      // Segments whose length is not a multiple of 16 bytes are copied in pairs, as many as the
      // segment has.
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

/// Computes one step of every chain of the warp.
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
  // Lanes 8 i to 8 i + 7 point at the rows of matrix i. The matrices are the lower and the upper
  // half of a step, for row tiles n and n + 1 each.
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

/// Adds the slices' finished chunks, first_chunk first, to `sum` in ascending order. A complete
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
    // Because of the barriers of the next stages, the next round cannot overwrite data that is read
    // here.
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

template <class Shape, class Units>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    product(const ProductArgs args, const __grid_constant__ Units units) {
  std::byte* const stages = dynamic_shared();
  auto* const exchange = reinterpret_cast<float4*>(stages + Shape::kStages * Shape::kStageBytes);
  auto* const ticket = reinterpret_cast<unsigned*>(stages + Shape::kStages * Shape::kStageBytes +
                                                   Shape::kExchangeBytes);
  const Position<Shape> position;
  const int chunks = args.segments / args.splits * args.segment_chunks;
  const int rounded = (chunks + Shape::kSlices - 1) / Shape::kSlices * Shape::kSlices;
  const int stride = static_cast<int>(gridDim.x);
  const int count = units.count(args);
  if (static_cast<int>(blockIdx.x) >= count) return;

  // Copies run this many stages ahead:
  constexpr int kAhead = Shape::kStages - 1;
  int copy_index = static_cast<int>(blockIdx.x);
  int copy_chunk = 0;
  int copy_part = 0;
  auto copy_unit = units.unit(args, copy_index);
  const auto copy_next = [&](int slot) {
    if (copy_index < count) {
      load_stage<Shape>(args, copy_unit, position, copy_chunk + position.slice, copy_part,
                        stages + slot * Shape::kStageBytes);
      if (++copy_part == kStagesPerChunk) {
        copy_part = 0;
        copy_chunk += Shape::kSlices;
        if (copy_chunk == rounded) {
          copy_chunk = 0;
          copy_index += stride;
          if (copy_index < count) copy_unit = units.unit(args, copy_index);
        }
      }
    }
    cp_async_commit();
  };
  for (int slot = 0; slot < kAhead; ++slot) copy_next(slot);

  int slot = 0;
  int free_slot = kAhead;
  Accumulators<Shape> chain;
  Accumulators<Shape> sum;
  for (int index = static_cast<int>(blockIdx.x); index < count; index += stride) {
    const auto unit = units.unit(args, index);
    clear<Shape>(sum);
    for (int first_chunk = 0; first_chunk < rounded; first_chunk += Shape::kSlices) {
      clear<Shape>(chain);
#pragma unroll 1
      for (int part = 0; part < kStagesPerChunk; ++part) {
        cp_async_wait<kAhead - 1>();
        // After the barrier all copies of this stage have arrived, and no thread still uses the
        // stage before.
        __syncthreads();
        copy_next(free_slot);
        const int steps = part_of(args, unit, first_chunk + position.slice, part).steps;
        const std::byte* stage = stages + slot * Shape::kStageBytes;
        multiply_stage<Shape>(stage, position, steps, chain);
        free_slot = free_slot + 1 == Shape::kStages ? 0 : free_slot + 1;
        slot = slot + 1 == Shape::kStages ? 0 : slot + 1;
      }
      fold<Shape>(args, position, first_chunk, exchange, chain, sum);
    }
    if (!Units::kShared || args.splits == 1) {
      write_sum<Shape>(args, unit, position, sum);
      continue;
    }
    if constexpr (Units::kShared) {
      if (position.slice == 0) {
        store_sum<Shape>(stored_sum<Shape>(args.parts, index, position), sum);
      }
      if (last_to_arrive(args, unit, ticket, [] { __syncthreads(); })) {
        write_splits<Shape>(args, unit, position);
      }
    }
  }
}

}  // namespace paceline::kernels::cuda
