// Launches of the matrix products; the bf16 kernels are in product.cuh and product_warpgroups.cuh,
// the fp32 one here.
#include "kernels/cuda/linear.hpp"

#include <array>
#include <utility>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/product_warpgroups.cuh"
#include "kernels/cuda/row_map.hpp"

namespace paceline::kernels::cuda {
namespace {

constexpr std::size_t kCounterBytes = kLinearCounters * sizeof(unsigned);

// ---- bf16 --------------------------------------------------------------------------------------

template <class Shape>
void launch_product(const LinearPlan& plan, ProductArgs args, cudaStream_t stream) {
  args.feature_tiles = (args.n + Shape::kFeatures - 1) / Shape::kFeatures;
  args.row_tiles = (args.rows + Shape::kRows - 1) / Shape::kRows;
  args.units = args.feature_tiles * args.row_tiles * args.splits;
  constexpr std::size_t kSum = std::size_t{Shape::kQuads} * Shape::kOwners;  // quads of a tile
  args.parts = args.waiting + plan.grid * args.levels * kSum;
  if constexpr (Shape::kWarpgroups) {
    launch(product_warpgroups<Shape>, dim3(plan.grid), dim3(Shape::kThreads), Shape::kSharedBytes,
           stream, args, row_map(args.in, args.rows, args.k, Shape::kRows));
  } else {
    launch(product<Shape>, dim3(plan.grid), dim3(Shape::kThreads), Shape::kSharedBytes, stream,
           args);
  }
}

using ProductLauncher = void (*)(const LinearPlan&, ProductArgs, cudaStream_t);

template <std::size_t... I>
constexpr std::array<ProductLauncher, sizeof...(I)> product_launchers(std::index_sequence<I...>) {
  return {&launch_product<std::tuple_element_t<I, TileShapes>>...};
}

// ---- fp32 --------------------------------------------------------------------------------------

// For checks against other programs and for small models, not for speed: a lane computes one
// feature of kRowsPerWarp rows, straight from global memory, where the lanes of a warp read 128
// bytes of weights and one element of each row.
constexpr int kRowsPerWarp = 4;
constexpr int kWarps = 8;
constexpr int kLevels = 7;  ///< log2(kMaxLinearSegments) + 1

struct Product32Args {
  const float* weight;  ///< [tiles][k][32]
  const float* bias;    ///< [n] or null
  const float* in;      ///< [rows, k]
  void* out;            ///< see ProductArgs; of fp32
  int rows, n, k;
  int segments;
  bool gated;
};

__global__ void __launch_bounds__(32 * kWarps) product_f32(const Product32Args args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row =
      (static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32) * kRowsPerWarp;
  if (first_row >= args.rows) return;
  const float* weight = args.weight + static_cast<std::size_t>(blockIdx.x) * args.k * 32 + lane;
  const float* in[kRowsPerWarp];
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    in[r] = args.in + static_cast<std::size_t>(min(first_row + r, args.rows - 1)) * args.k;
  }

  const int length = args.k / args.segments;
  float waiting[kLevels][kRowsPerWarp];  // by level of the tree, until the neighbour's sum exists
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
    for (int level = 0; level < kLevels; ++level) {
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
  // Where gates and ups alternate, even lanes write the result of their own and their neighbour's
  // value.
  const int width = args.gated ? args.n / 2 : args.n;
  const int column = args.gated ? feature / 2 : feature;
  const bool writes = valid && (!args.gated || lane % 2 == 0);
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    if (first_row + r >= args.rows) return;
    float x = valid && args.bias != nullptr ? sum[r] + args.bias[feature] : sum[r];
    if (args.gated) x = swiglu_value(x, __shfl_xor_sync(kAllLanes, x, 1));
    if (writes) {
      static_cast<float*>(args.out)[static_cast<std::size_t>(first_row + r) * width + column] = x;
    }
  }
}

void multiply(const LinearPlan& plan, const DeviceLinear& weight, const std::byte* in, int rows,
              void* out, const LinearWorkspace& workspace, cudaStream_t stream) {
  if (rows == 0) return;
  const LinearLayout& layout = weight.layout;
  if (layout.dtype == DType::f32) {
    Product32Args args{};
    args.weight = reinterpret_cast<const float*>(weight.weight);
    args.bias = weight.bias;
    args.in = reinterpret_cast<const float*>(in);
    args.out = out;
    args.rows = rows;
    args.n = layout.n;
    args.k = layout.k;
    args.segments = layout.segments;
    args.gated = layout.gated;
    constexpr int kRows = kRowsPerWarp * kWarps;
    launch(product_f32, dim3(layout.tiles(), (rows + kRows - 1) / kRows), dim3(32 * kWarps), 0,
           stream, args);
    return;
  }
  static constexpr auto kLaunchers =
      product_launchers(std::make_index_sequence<std::tuple_size_v<TileShapes>>());
  ProductArgs args{};
  args.weight = weight.weight;
  args.bias = weight.bias;
  args.in = in;
  args.out = out;
  args.arrivals = reinterpret_cast<unsigned*>(workspace.data);
  args.waiting = reinterpret_cast<float4*>(workspace.data + kCounterBytes);
  args.rows = rows;
  args.n = layout.n;
  args.k = layout.k;
  args.segments = layout.segments;
  args.segment_length = layout.segment_length();
  args.segment_steps = layout.segment_steps();
  args.segment_chunks = layout.segment_chunks();
  args.chunks_reciprocal = static_cast<unsigned>(
      ((std::uint64_t{1} << 32) + args.segment_chunks - 1) / args.segment_chunks);
  args.weight_tiles = layout.tiles();
  args.gated = layout.gated;
  args.splits = plan.splits;
  args.levels = tree_levels(layout.segments / plan.splits);
  kLaunchers.at(plan.shape)(plan, args, stream);
}

}  // namespace

void linear(const LinearPlan& plan, const DeviceLinear& weight, const std::byte* in, int rows,
            float* out, const LinearWorkspace& workspace, cudaStream_t stream) {
  if (weight.layout.gated) throw Error(ExitCode::internal, "linear: gates and ups take turns");
  multiply(plan, weight, in, rows, out, workspace, stream);
}

void linear_swiglu(const LinearPlan& plan, const DeviceLinear& weight, const std::byte* in,
                   int rows, std::byte* out, const LinearWorkspace& workspace,
                   cudaStream_t stream) {
  if (!weight.layout.gated) throw Error(ExitCode::internal, "linear_swiglu: no gates and ups");
  multiply(plan, weight, in, rows, out, workspace, stream);
}

}  // namespace paceline::kernels::cuda
