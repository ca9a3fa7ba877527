// The bf16 matrix product by warpgroups (wgmma), for sm_90a. See linear.hpp for the arithmetic and
// linear_plan.hpp for the layouts.
//
// One warp of a block copies; the others multiply. The copying warp walks over all stages of the
// block's units, kStageSteps steps of a segment each, and fills a ring of slots: weights fragment
// by fragment, and a box of input rows by the copy engine. A slot has two barriers: `full` counts
// its bytes, `empty` the warps that no longer need it. There are no other waits, so copies run
// ahead past the ends of chunks, segments and units.
//
// A warpgroup multiplies 64 features by all rows of the tile. Its warps' fragments of the weight
// are their registers of A, and the rows are in the hardware's 128-byte permutation. At the end of
// each stage the warpgroup waits for its own products; meanwhile the tensor cores compute products
// of other warpgroups. Instructions are 16 elements of k deep, so a chunk's chain is as with mma.
// The bits are the same if wgmma adds 16 products and the accumulator like mma. On sm_90 it does
// (tests/gpu/test_tensor_cores.cu tests a device).
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/product_parts.cuh"
#include "kernels/cuda/warpgroup_ptx.cuh"

namespace paceline::kernels::cuda {

/// The ring of a block, in shared memory.
template <class Shape>
struct Ring {
  std::byte* stages;
  Mbarrier* full;
  Mbarrier* empty;

  __device__ explicit Ring(std::byte* shared)
      : stages(shared),
        full(reinterpret_cast<Mbarrier*>(shared + Shape::kStages * Shape::kStageBytes)),
        empty(full + Shape::kStages) {}
  __device__ std::byte* stage(int slot) const { return stages + slot * Shape::kStageBytes; }
};

/// A place in the walk over a ring: the slot, and the parity of its phase.
template <class Shape>
struct RingPlace {
  int slot = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void next() {
    if (++slot == Shape::kStages) {
      slot = 0;
      parity ^= 1U;
    }
  }
};

/// Fills the ring with all stages of the block's units; one warp runs it.
template <class Shape, class Units>
__device__ __forceinline__ void copy_units(const ProductArgs& args, const Units& units,
                                           const CUtensorMap* rows, const Ring<Shape>& ring) {
  constexpr int kTileBytes = kStageSteps * 512;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::size_t tile_bytes = static_cast<std::size_t>(args.segments * args.segment_steps) * 512;
  RingPlace<Shape> place;
  const int count = units.count(args);
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.x); index < count;
       index += static_cast<int>(gridDim.x)) {
    const auto unit = units.unit(args, index);
    const int first_tile = unit.feature_tile * Shape::kFeatureTiles;
    const int tiles = min(Shape::kFeatureTiles, args.weight_tiles - first_tile);
    const int segment_end = unit.first_segment + args.segments / args.splits;
    const std::byte* weight = unit.weight(args) + (first_tile + lane) * tile_bytes;
#pragma unroll 1
    for (int segment = unit.first_segment; segment < segment_end; ++segment) {
#pragma unroll 1
      for (int step = 0; step < args.segment_steps; step += kStageSteps) {
        const int bytes = min(kStageSteps, args.segment_steps - step) * 512;
        std::byte* const stage = ring.stage(place.slot);
        Mbarrier* const full = ring.full + place.slot;
        mbarrier_wait(ring.empty + place.slot, place.parity ^ 1U);
        if (lane == 0) {
          mbarrier_arrive_expect(full, tiles * bytes + Shape::kInputBytes);
          box_copy(stage + Shape::kWeightBytes, rows, segment * args.segment_length + step * kStep,
                   unit.template first_row<Shape>(), full);
        }
        __syncwarp();
        if (lane < tiles) {
          bulk_copy(stage + lane * kTileBytes,
                    weight + static_cast<std::size_t>(segment * args.segment_steps + step) * 512,
                    bytes, full);
        }
        place.next();
      }
    }
  }
}

/// Multiplies the stages of a chunk of `steps` steps into `chain`. Waits for each stage, because
/// running half a stage ahead was measured to be 4 to 6 % slower on an H100.
template <class Shape>
__device__ __forceinline__ void multiply_chunk(const Ring<Shape>& ring, RingPlace<Shape>& place,
                                               const Position<Shape>& position, int steps,
                                               Accumulators<Shape>& chain) {
#pragma unroll 1
  for (int first = 0; first < steps; first += kStageSteps) {
    const std::byte* stage = ring.stage(place.slot);
    const std::byte* fragments = stage + (position.warp_m * kStageSteps * 32 + position.lane) * 16;
    const std::byte* rows = stage + Shape::kWeightBytes;
    mbarrier_wait(ring.full + place.slot, place.parity);
    std::uint32_t a[kStageSteps][4];
    const auto load = [&](int step, std::uint32_t(&fragment)[4]) {
      const uint4 registers = *reinterpret_cast<const uint4*>(fragments + step * 512);
      fragment[0] = registers.x;
      fragment[1] = registers.y;
      fragment[2] = registers.z;
      fragment[3] = registers.w;
    };
    const int here = steps - first;
    if (here >= kStageSteps) {
#pragma unroll
      for (int step = 0; step < kStageSteps; ++step) load(step, a[step]);
      wgmma_begin();
#pragma unroll
      for (int step = 0; step < kStageSteps; ++step) {
        wgmma_bf16<Shape::kN>(chain[0], a[step], rows, step, first + step > 0);
      }
      wgmma_commit();
      wgmma_wait<0>();
    } else {  // the end of a segment
#pragma unroll 1
      for (int step = 0; step < here; ++step) {
        load(step, a[0]);
        wgmma_begin();
        wgmma_bf16<Shape::kN>(chain[0], a[0], rows, step, first + step > 0);
        wgmma_commit();
        wgmma_wait<0>();
      }
    }
    wgmma_settle(chain[0]);
    __syncwarp();
    if (position.lane == 0) mbarrier_arrive(ring.empty + place.slot);
    place.next();
  }
}

/// Computes the block's units from the ring; the threads that hold sums run it.
template <class Shape, class Units>
__device__ __forceinline__ void multiply_units(const ProductArgs& args, const Units& units,
                                               const Ring<Shape>& ring, unsigned* ticket) {
  const Position<Shape> position;
  RingPlace<Shape> place;
  Accumulators<Shape> chain;
  Accumulators<Shape> sum;
  const int count = units.count(args);
  clear<Shape>(chain);
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.x); index < count;
       index += static_cast<int>(gridDim.x)) {
    clear<Shape>(sum);
#pragma unroll 1
    for (int segment = 0; segment < args.segments / args.splits; ++segment) {
#pragma unroll 1
      for (int step = 0; step < args.segment_steps; step += kChunkSteps) {
        multiply_chunk<Shape>(ring, place, position, min(kChunkSteps, args.segment_steps - step),
                              chain);
#pragma unroll
        for (int n = 0; n < Shape::kN; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[0][n][i] += chain[0][n][i];
        }
      }
      climb<Shape>(args, position, segment, sum);
    }
    const auto unit = units.unit(args, index);  // only now: all registers were in use
    if (!Units::kShared || args.splits == 1) {
      write_sum<Shape>(args, unit, position, sum);
      continue;
    }
    if constexpr (Units::kShared) {
      store_sum<Shape>(stored_sum<Shape>(args.parts, index, position), sum);
      if (last_to_arrive(args, unit, ticket, [] { meet_first(Shape::kOwners); })) {
        write_splits<Shape>(args, unit, position);
      }
    }
  }
}

template <class Shape, class Units>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    product_warpgroups(const __grid_constant__ ProductArgs args,
                       const __grid_constant__ Units units,
                       const __grid_constant__ CUtensorMap rows) {
  const Ring<Shape> ring(dynamic_shared());
  auto* const ticket = reinterpret_cast<unsigned*>(ring.empty + Shape::kStages);
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < Shape::kStages; ++slot) {
      mbarrier_init(ring.full + slot, 1);
      mbarrier_init(ring.empty + slot, Shape::kOwners / 32);
    }
    mbarrier_publish();
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= Shape::kOwners) {
    give_registers<Shape::kCopyRegisters>();
    if (static_cast<int>(threadIdx.x) < Shape::kOwners + 32) copy_units(args, units, &rows, ring);
  } else {
    take_registers<Shape::kRegisters>();
    multiply_units(args, units, ring, ticket);
  }
}

}  // namespace paceline::kernels::cuda
