// The choice of tile, splits and blocks for a matrix product, by pure functions of sizes. A plan
// changes only the time and no bit of the result (see linear.hpp), which layouts define.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline::kernels::cuda {

/// Number of elements in one chain of additions, which is part of the definition of the result. It
/// is small because the warps of a block share out chunks if rows are few, and so that a whole
/// chunk can be in flight.
inline constexpr int kChunk = 256;
inline constexpr int kStep = 16;  ///< elements in one mma.m16n8k16
inline constexpr int kChunkSteps = kChunk / kStep;
/// Number of steps that a pipeline stage holds from each chunk in progress.
inline constexpr int kStageSteps = 4;
inline constexpr int kStagesPerChunk = kChunkSteps / kStageSteps;
inline constexpr int kMaxLinearSegments = 64;

/// Returns the most sums that wait while `segments` segments, a power of two, are added up in the
/// order of the tree: one for each of its levels.
[[nodiscard]] constexpr int tree_levels(int segments) {
  return std::bit_width(static_cast<unsigned>(segments)) - 1;
}

/// The layout of a weight in device memory.
///
/// bf16: [tiles of 16 features][segments][steps of 16 k][32 lanes][4 registers][2], the A fragments
/// of mma.m16n8k16 as each lane holds them. So a lane loads a fragment with one 16-byte load, and
/// the steps of a tile are contiguous. Rows g and g + 8 of A are features 2 g and 2 g + 1 of the
/// tile: a lane's results are neighbours in a row of the output. Zeros past n and past the end of a
/// segment.
///
/// fp32: [tiles of 32 features][k][32], zeros past n.
struct LinearLayout {
  int n = 0;
  int k = 0;
  int segments = 1;
  DType dtype = DType::bf16;
  /// Whether the packed rows are gates and then as many ups, and features alternate: gate 0, up 0,
  /// gate 1, ... So one thread has both results of a pair.
  bool gated = false;

  [[nodiscard]] int segment_length() const { return k / segments; }  ///< elements
  [[nodiscard]] int segment_steps() const { return (segment_length() + kStep - 1) / kStep; }
  [[nodiscard]] int segment_chunks() const { return (segment_length() + kChunk - 1) / kChunk; }
  [[nodiscard]] int tile_features() const { return dtype == DType::bf16 ? 16 : 32; }
  [[nodiscard]] int tiles() const { return (n + tile_features() - 1) / tile_features(); }
  [[nodiscard]] std::size_t tile_bytes() const {
    return dtype == DType::bf16 ? std::size_t{512} * segments * segment_steps()
                                : std::size_t{128} * k;
  }
  [[nodiscard]] std::size_t bytes() const { return tiles() * tile_bytes(); }
  /// Bytes of a row, input and output together.
  [[nodiscard]] double row_bytes() const {
    const double size = dtype == DType::bf16 ? 2 : 4;
    return size * k + (gated ? size / 2 : 4.0) * n;
  }
};

/// Returns the number of segments for q/k/v and for an EAGLE-3 head's fc, whose K the backend may
/// cut as it likes. It is part of the definition of the result, so it depends only on k, which is
/// the same in all batches, plans and tensor-parallel degrees. From 12 chunks on it is two, so that
/// two blocks can share a tile: at 256 rows 4,608 features are 72 tiles of 128 x 128, for 132
/// multiprocessors. With more segments, walks that share nothing would lose more by their waiting
/// sums than others gain. Below 12 chunks the walk is too short for even one such sum.
[[nodiscard]] constexpr int column_segments(int k) {
  return k >= 12 * kChunk && k % (2 * kStep) == 0 ? 2 : 1;
}
/// Number of segments for gate and up. It is one because, except at high degrees of tensor
/// parallelism, they have enough tiles in those cases in which cutting K would help. In large
/// batches a waiting sum would cost 5 to 8 % of a layer's largest product.
inline constexpr int kGateUpSegments = 1;
static_assert(kGateUpSegments == 1, "Operations::linear_swiglu() promises the bits of one");

/// Makes a layout. Throws Error (internal) if `segments` is not a power of two up to
/// kMaxLinearSegments that cuts k into equal parts, or if gates have no ups.
[[nodiscard]] LinearLayout linear_layout(int n, int k, int segments, DType dtype,
                                         bool gated = false);
/// Returns the feature that packed row `row` becomes.
[[nodiscard]] constexpr int feature_of(int row, int n, bool gated) {
  if (!gated) return row;
  return row < n / 2 ? 2 * row : 2 * (row - n / 2) + 1;
}

/// The tile of a thread block in the kernel by warps, known at compile time. A warp computes kM
/// tiles of 16 features times kN tiles of 8 rows; kWarpsM x kWarpsN warps make a tile; kSlices such
/// sets process as many chunks of k at a time. kStages: number of stages in the pipeline. kBlocks:
/// number of blocks that reside on a multiprocessor.
template <int kM_, int kN_, int kWarpsM_, int kWarpsN_, int kSlices_, int kStages_, int kBlocks_>
struct TileShape {
  static constexpr int kM = kM_;
  static constexpr int kN = kN_;
  static constexpr int kWarpsM = kWarpsM_;
  static constexpr int kWarpsN = kWarpsN_;
  static constexpr int kSlices = kSlices_;
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;
  static constexpr bool kWarpgroups = false;

  static constexpr int kFeatureTiles = kM * kWarpsM;  ///< tiles of 16 features
  static constexpr int kFeatures = 16 * kFeatureTiles;
  static constexpr int kRows = 8 * kN * kWarpsN;
  static constexpr int kOwners = 32 * kWarpsM * kWarpsN;  ///< number of threads that hold the sums
  static constexpr int kThreads = kOwners * kSlices;
  static constexpr int kQuads = kM * kN;  ///< number of float4 that a thread sums

  /// Shared memory in bytes: kStages of [slices][feature tiles][steps][32 lanes][16] weights and
  /// [slices][rows][8 pieces][16] inputs; [slices - 1][quads][owners] float4; one counter.
  static constexpr int kWeightBytes = kSlices * kFeatureTiles * kStageSteps * 512;
  static constexpr int kInputBytes = kSlices * kRows * kStageSteps * kStep * 2;
  static constexpr int kStageBytes = kWeightBytes + kInputBytes;
  static constexpr int kExchangeBytes = (kSlices - 1) * kQuads * kOwners * 16;
  static constexpr int kSharedBytes = kStages * kStageBytes + kExchangeBytes + 16;

  static_assert(kFeatureTiles * kStageSteps * 32 % kOwners == 0, "whole passes of copies");
  static_assert(kN == 1 || kN % 2 == 0);
  static_assert((kSharedBytes + 1024) * kBlocks <= 228 * 1024, "shared memory of sm_90");
};

/// The tile of a thread block in the kernel by warpgroups: kGroups of them compute 64 features
/// times kN tiles of 8 rows each, and the first warp of another copies. One block fills a
/// multiprocessor.
template <int kGroups, int kN_, int kStages_>
struct GroupShape {
  static constexpr int kM = 1;
  static constexpr int kN = kN_;
  static constexpr int kWarpsM = 4 * kGroups;
  static constexpr int kWarpsN = 1;
  static constexpr int kSlices = 1;
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = 1;
  static constexpr bool kWarpgroups = true;

  static constexpr int kFeatureTiles = kWarpsM;  ///< tiles of 16 features
  static constexpr int kFeatures = 16 * kFeatureTiles;
  static constexpr int kRows = 8 * kN;
  static constexpr int kOwners = 128 * kGroups;  ///< number of threads that hold the sums
  static constexpr int kThreads = kOwners + 128;
  static constexpr int kQuads = kN;  ///< number of float4 that a thread sums
  /// Registers of a thread that multiplies, and of one that copies. A block starts with equal
  /// shares.
  static constexpr int kRegisters = kGroups == 3 ? 160 : 232;
  static constexpr int kCopyRegisters = kGroups == 3 ? 32 : 40;

  /// Shared memory in bytes: kStages of [feature tiles][steps][32 lanes][16] weights and [rows][8
  /// pieces][16] inputs; two barriers for each stage; one counter.
  static constexpr int kWeightBytes = kFeatureTiles * kStageSteps * 512;
  static constexpr int kInputBytes = kRows * kStageSteps * kStep * 2;
  static constexpr int kStageBytes = kWeightBytes + kInputBytes;
  static constexpr int kSharedBytes = kStages * (kStageBytes + 16) + 16;

  static_assert(kGroups == 2 || kGroups == 3);
  static_assert(kGroups * kRegisters + kCopyRegisters <= 65536 / kThreads / 8 * 8 * (kGroups + 1));
  static_assert(kStageSteps * kStep == 64 && kRows <= 256, "a box of row_map()");
  static_assert(kSharedBytes + 1024 <= 228 * 1024, "shared memory of sm_90");
};

/// All tiles. Smaller ones come first.
using TileShapes = std::tuple<
    // For few rows, only the bytes of the weight in flight matter.
    TileShape<1, 1, 1, 1, 8, 4, 2>,  // 16 features x 8 rows
    TileShape<1, 1, 2, 1, 4, 5, 2>,  // 32 x 8
    TileShape<1, 1, 4, 1, 2, 5, 2>,  // 64 x 8
    TileShape<1, 2, 2, 1, 4, 4, 2>,  // 32 x 16
    TileShape<1, 2, 4, 1, 2, 5, 2>,  // 64 x 16
    TileShape<1, 4, 2, 1, 4, 4, 1>,  // 32 x 32
    TileShape<1, 4, 4, 1, 2, 4, 2>,  // 64 x 32
    TileShape<2, 4, 4, 1, 1, 5, 2>,  // 128 x 32
    TileShape<1, 4, 4, 2, 1, 5, 2>,  // 64 x 64
    TileShape<4, 4, 2, 2, 1, 4, 2>,  // 128 x 64
    // For many rows, operands from shared memory must keep up with the tensor cores.
    TileShape<4, 4, 2, 4, 1, 5, 1>,  // 128 x 128
    TileShape<3, 8, 4, 2, 1, 4, 1>,  // 192 x 128
    // These need warpgroups, which LinearDevice may have.
    GroupShape<2, 4, 10>,   // 128 x 32
    GroupShape<2, 8, 9>,    // 128 x 64
    GroupShape<2, 16, 7>,   // 128 x 128
    GroupShape<3, 16, 5>,   // 192 x 128
    GroupShape<2, 24, 5>>;  // 128 x 192

/// Tiles for products by experts, as indices into TileShapes. They are few, since each is compiled
/// once more.
inline constexpr int kExpertShapes[] = {1, 4, 6, 9, 12, 13, 14};

/// Properties of a tile that the choice depends on.
struct TileTraits {
  int features = 0;
  int rows = 0;
  int slices = 0;
  int warps = 0;
  bool warpgroups = false;
  int blocks = 0;              ///< blocks on a multiprocessor of sm_90
  int shared_bytes = 0;        ///< shared memory of a block
  int flight = 0;              ///< bytes of weights that one block has in flight
  int step_operands = 0;       ///< bytes of shared memory that a step of all slices accesses
  int warp_products = 0;       ///< mma that a warp does in a step
  std::size_t tile_bytes = 0;  ///< bytes of a tile's fp32 sums
};
[[nodiscard]] const std::vector<TileTraits>& tile_traits();

/// Properties of the device that the choice depends on.
struct LinearDevice {
  int multiprocessors = 132;  ///< H200
  /// Whether wgmma exists and gives the same bits as mma. No document says that it does, but
  /// tests/gpu/test_tensor_cores.cu tests a device. On an H100 it does.
  bool warpgroups = false;
  /// Bytes of shared memory for a block and in a multiprocessor. Compute capability 9.0 and 10.0:
  /// 227 and 228 KB; 8.0: 163 and 164; 8.6, 8.9 and 12.0: 99 and 100.
  int block_shared = 227 * 1024;
  int shared = 228 * 1024;
};

/// The plan of a product. fp32 has only one way, so its plan is all zeros.
struct LinearPlan {
  int shape = 0;   ///< index into TileShapes
  int splits = 1;  ///< blocks that share a tile; each has a range of whole segments
  int grid = 0;    ///< number of blocks
  friend bool operator==(const LinearPlan&, const LinearPlan&) = default;
};

/// Bytes of the workspace for the waiting sums of a block's walk, the sums of splits, and the
/// counters of tiles that blocks share. It is large enough for a grid of 192 x 128 tiles over 132
/// multiprocessors with 64 segments (78 MB); plans whose splits need more are left out.
inline constexpr std::size_t kLinearWorkspaceBytes = std::size_t{128} << 20;
inline constexpr int kLinearCounters = 4096;  ///< uint32 at the start of the workspace

/// Returns all plans of a product for which the device's blocks and the workspace have room.
[[nodiscard]] std::vector<LinearPlan> linear_plans(const LinearLayout& layout, int rows,
                                                   const LinearDevice& device);
/// Returns the plan that is expected to take the least time.
[[nodiscard]] LinearPlan plan_linear(const LinearLayout& layout, int rows,
                                     const LinearDevice& device);
/// Plans of the two products by experts. Their tiles have the same number of rows.
struct ExpertPlans {
  LinearPlan gate_up;
  LinearPlan down;
};
/// Returns the plans for `rows` rows of `count` experts together, with tiles of kExpertShapes and
/// without splits. The layouts describe the matrices of one expert.
[[nodiscard]] ExpertPlans plan_experts(const LinearLayout& gate_up, const LinearLayout& down,
                                       int rows, int count, const LinearDevice& device);
/// Returns the estimated clocks of a plan, for comparing plans with each other.
[[nodiscard]] double estimated_clocks(const LinearPlan& plan, const LinearLayout& layout, int rows,
                                      const LinearDevice& device);

}  // namespace paceline::kernels::cuda
