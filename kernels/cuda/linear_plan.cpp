#include "kernels/cuda/linear_plan.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "runtime/core/error.hpp"

namespace paceline::kernels::cuda {
namespace {

// These are in bytes or operations a clock (of 1.7 GHz). They were fitted to the times of 2,200
// plans on an H100: all plans for all products of Qwen2.5 0.5B, 7B and 32B at 1 to 4,096 rows
// (tests/bench/linear_bench.cpp --plans). The plans chosen with them take 1.9 % longer than the
// best on average. They are used only to order plans.
constexpr double kMemoryBytes = 2040;        ///< from HBM, whole device
constexpr double kMemoryLatency = 2750;      ///< clocks: bytes in flight / bandwidth
constexpr double kCacheBytes = 4450;         ///< L2 to multiprocessors, whole device
constexpr double kPortBytes = 69;            ///< L2 to one multiprocessor
constexpr double kSumBytes = 47;             ///< L2 to one multiprocessor, for waiting sums
constexpr double kSharedBytes = 103;         ///< in one multiprocessor
constexpr double kWarpProductClocks = 12.4;  ///< mma.m16n8k16, one of four partitions
constexpr double kWarpgroupClocks = 6.05;    ///< the same product as part of a wgmma
constexpr double kProductLatency = 40;       ///< clocks for a dependent product
constexpr double kStageClocks = 97;          ///< barrier and first fragments of a stage
constexpr double kExposed = 0.15;            ///< share of other costs that a bottleneck leaves
constexpr double kArrivalClocks = 1640;      ///< fence and counter for a shared tile
constexpr double kRoundClocks = 900;         ///< eight loads of partial sums in a shared tile

int ceil_div(int a, int b) { return (a + b - 1) / b; }

template <class Shape>
TileTraits traits_of() {
  TileTraits t;
  t.features = Shape::kFeatures;
  t.rows = Shape::kRows;
  t.slices = Shape::kSlices;
  t.warps = Shape::kOwners * Shape::kSlices / 32;
  t.warpgroups = Shape::kWarpgroups;
  t.blocks = Shape::kBlocks;
  t.shared_bytes = Shape::kSharedBytes;
  t.flight = (Shape::kStages - 1) * Shape::kWeightBytes;
  // A warp, or a warpgroup, reads rows once.
  const int inputs = Shape::kWarpgroups ? Shape::kN * 64 : Shape::kN * 256;
  t.step_operands =
      t.warps * (Shape::kM * 512 + inputs) + Shape::kStageBytes / kStageSteps;  // reads and writes
  t.warp_products = Shape::kQuads;
  t.tile_bytes = std::size_t{Shape::kQuads} * Shape::kOwners * 16;
  return t;
}

template <std::size_t... I>
std::vector<TileTraits> all_traits(std::index_sequence<I...>) {
  return {traits_of<std::tuple_element_t<I, TileShapes>>()...};
}

/// Returns whether the copy engine can copy the rows of a product. Their length must be valid for a
/// row_map(). Segments must be whole steps, since a box does not end where a segment does.
bool copied_as_boxes(const LinearLayout& layout) {
  return layout.k % 8 == 0 && layout.segment_length() % kStep == 0;
}

bool usable(const TileTraits& shape, const LinearLayout& layout, const LinearDevice& device) {
  if (shape.warpgroups && !(device.warpgroups && copied_as_boxes(layout))) return false;
  return shape.shared_bytes <= device.block_shared;
}

/// Number of blocks with this tile that a multiprocessor runs at once. The system takes another
/// kilobyte for each.
int resident_blocks(const TileTraits& shape, const LinearDevice& device) {
  return std::min(shape.blocks, device.shared / (shape.shared_bytes + 1024));
}

/// Returns the number of blocks in a plan, or 0 if the workspace has no room for it.
int grid_of(const TileTraits& shape, int splits, const LinearLayout& layout, int rows,
            const LinearDevice& device) {
  const std::int64_t tiles =
      static_cast<std::int64_t>(ceil_div(layout.n, shape.features)) * ceil_div(rows, shape.rows);
  const std::int64_t resident =
      static_cast<std::int64_t>(device.multiprocessors) * resident_blocks(shape, device);
  const std::size_t room = kLinearWorkspaceBytes - kLinearCounters * sizeof(std::uint32_t);
  auto slots = static_cast<std::int64_t>(room / shape.tile_bytes);
  if (splits > 1) {
    // The sums of a tile's splits stay until its last block has arrived.
    slots -= tiles * splits;
    if (slots < 0 || tiles > kLinearCounters) return 0;
  }
  const std::int64_t blocks = std::min(tiles * splits, resident);
  const int levels = tree_levels(layout.segments / splits);
  return static_cast<int>(levels == 0 ? blocks : std::min(blocks, slots / levels));
}

}  // namespace

LinearLayout linear_layout(int n, int k, int segments, DType dtype, bool gated) {
  const std::string what = "a weight of " + std::to_string(n) + " x " + std::to_string(k) + " in " +
                           std::to_string(segments) + " segments: ";
  if (n < 1 || k < 1) throw Error(ExitCode::internal, what + "it is empty");
  if (segments < 1 || segments > kMaxLinearSegments ||
      !std::has_single_bit(static_cast<unsigned>(segments))) {
    throw Error(ExitCode::internal,
                what + "not a power of two up to " + std::to_string(kMaxLinearSegments));
  }
  if (k % (2 * segments) != 0) throw Error(ExitCode::internal, what + "k has no such even parts");
  if (gated && n % 2 != 0) throw Error(ExitCode::internal, what + "not as many gates as ups");
  return {n, k, segments, dtype, gated};
}

const std::vector<TileTraits>& tile_traits() {
  static const std::vector<TileTraits> all =
      all_traits(std::make_index_sequence<std::tuple_size_v<TileShapes>>());
  return all;
}

std::vector<LinearPlan> linear_plans(const LinearLayout& layout, int rows,
                                     const LinearDevice& device) {
  if (layout.dtype != DType::bf16) return {LinearPlan{}};
  std::vector<LinearPlan> plans;
  for (int shape = 0; shape < static_cast<int>(tile_traits().size()); ++shape) {
    if (tile_traits()[shape].warpgroups && !(device.warpgroups && copied_as_boxes(layout)))
      continue;
    if (tile_traits()[shape].shared_bytes > device.block_shared) continue;
    for (int splits = 1; splits <= layout.segments; splits *= 2) {
      const int grid = grid_of(tile_traits()[shape], splits, layout, rows, device);
      if (grid > 0) plans.push_back({shape, splits, grid});
    }
  }
  return plans;
}

double estimated_clocks(const LinearPlan& plan, const LinearLayout& layout, int rows,
                        const LinearDevice& device) {
  const TileTraits& shape = tile_traits()[plan.shape];
  const int row_tiles = ceil_div(rows, shape.rows);
  const int places = ceil_div(layout.n, shape.features) * row_tiles * plan.splits;
  // In each turn, every block takes one place; the last turn may be short.
  const int turns = ceil_div(places, plan.grid);
  const int last = places - (turns - 1) * plan.grid;
  const double busiest = ceil_div(places, std::min(plan.grid, device.multiprocessors));
  const double depth = static_cast<double>(layout.k) / plan.splits;

  // Weights are read from memory once, because the row tiles of a feature tile run together.
  const auto memory_of = [&](double blocks, double in_flight) {
    return 2.0 * layout.n * layout.k * blocks / places / kMemoryBytes *
           std::hypot(1.0, kMemoryBytes * kMemoryLatency / (in_flight * shape.flight));
  };
  const double memory = memory_of(places - last, plan.grid) + memory_of(last, last) +
                        rows * layout.row_bytes() / kMemoryBytes;
  const double operands = 2.0 * depth * (shape.features + static_cast<double>(rows) / row_tiles);
  const double cache = std::max(places * operands / kCacheBytes, busiest * operands / kPortBytes);
  // These are the clocks of one stage in one block: for all warps together, and for the chain of
  // one warp.
  const double product = shape.warpgroups ? kWarpgroupClocks : kWarpProductClocks;
  const double products = shape.warps / 4.0 * shape.warp_products * product;
  const double throughput = kStageSteps * std::max(products, shape.step_operands / kSharedBytes);
  const double chain =
      kStageSteps * std::max(kProductLatency, shape.warp_products * product) + kStageClocks;
  const int chunks = layout.segment_chunks() * (layout.segments / plan.splits);
  const double stages = static_cast<double>(ceil_div(chunks, shape.slices)) * kStagesPerChunk;
  const double compute = stages * std::max(busiest * throughput, turns * chain);

  // Waiting sums are written and read while a place is walked, and between the places of a tile.
  const int waiting = layout.segments / plan.splits - 1 + (plan.splits > 1 ? 1 : 0);
  const double sums = 2.0 * busiest * waiting * static_cast<double>(shape.tile_bytes) / kSumBytes;
  const double rounds = std::max(1.0, shape.warp_products * plan.splits / 8.0);
  // The bottleneck does not quite hide the other costs.
  const double longest = std::max({memory, cache, compute});
  return longest + kExposed * (memory + cache + compute - longest) + sums +
         (plan.splits > 1 ? kArrivalClocks + kRoundClocks * rounds : 0.0);
}

LinearPlan plan_linear(const LinearLayout& layout, int rows, const LinearDevice& device) {
  LinearPlan best;
  double least = std::numeric_limits<double>::infinity();
  for (const LinearPlan& plan : linear_plans(layout, rows, device)) {
    if (layout.dtype != DType::bf16) return plan;
    const double clocks = estimated_clocks(plan, layout, rows, device);
    if (clocks < least) {
      least = clocks;
      best = plan;
    }
  }
  return best;
}

// A product is planned like a product by one matrix with the features of all experts that rows may
// choose. The number of rows is the average for each of these experts.
ExpertPlans plan_experts(const LinearLayout& gate_up, const LinearLayout& down, int rows, int count,
                         const LinearDevice& device) {
  ExpertPlans best;
  if (gate_up.dtype != DType::bf16) return best;
  const int used = std::min(rows, count);
  const int average = ceil_div(rows, used);
  struct Estimate {
    LinearPlan plan;
    double clocks = std::numeric_limits<double>::infinity();
  };
  const auto estimate = [&](const LinearLayout& layout, int tile_rows) {
    const LinearLayout together = linear_layout(layout.n * used, layout.k, 1, DType::bf16);
    Estimate least;
    for (const int shape : kExpertShapes) {
      const TileTraits& tile = tile_traits()[shape];
      if (tile.rows != tile_rows || !usable(tile, layout, device)) continue;
      const LinearPlan plan{shape, 1, grid_of(tile, 1, together, average, device)};
      const double clocks = estimated_clocks(plan, together, average, device);
      if (clocks < least.clocks) least = {plan, clocks};
    }
    return least;
  };
  double least = std::numeric_limits<double>::infinity();
  for (const int shape : kExpertShapes) {
    const int tile_rows = tile_traits()[shape].rows;
    const Estimate first = estimate(gate_up, tile_rows);
    const Estimate second = estimate(down, tile_rows);
    if (first.clocks + second.clocks < least) {
      least = first.clocks + second.clocks;
      best = {first.plan, second.plan};
    }
  }
  if (std::isinf(least)) throw Error(ExitCode::internal, "no tile of experts fits the device");
  return best;
}

}  // namespace paceline::kernels::cuda
