// Launches of the products by one matrix; the kernels are in product.cuh, product_warpgroups.cuh
// and product_f32.cuh.
#include "kernels/cuda/linear.hpp"

#include <array>
#include <utility>

#include "kernels/cuda/product_f32.cuh"
#include "kernels/cuda/product_launch.cuh"

namespace paceline::kernels::cuda {
namespace {

constexpr std::size_t kCounterBytes = kLinearCounters * sizeof(unsigned);

// ---- bf16 --------------------------------------------------------------------------------------

template <class Shape>
void launch_product(const LinearPlan& plan, ProductArgs args, cudaStream_t stream) {
  args.feature_tiles = (args.n + Shape::kFeatures - 1) / Shape::kFeatures;
  args.row_tiles = (args.rows + Shape::kRows - 1) / Shape::kRows;
  args.units = args.feature_tiles * args.row_tiles * args.splits;
  constexpr std::size_t kSum = std::size_t{Shape::kQuads} * Shape::kOwners;  // quads in a tile
  args.parts = args.waiting + plan.grid * args.levels * kSum;
  start_product<Shape>(plan.grid, args, MatrixUnits{}, stream);
}

using ProductLauncher = void (*)(const LinearPlan&, ProductArgs, cudaStream_t);

template <std::size_t... I>
constexpr std::array<ProductLauncher, sizeof...(I)> product_launchers(std::index_sequence<I...>) {
  return {&launch_product<std::tuple_element_t<I, TileShapes>>...};
}

// ---- fp32 --------------------------------------------------------------------------------------

__global__ void __launch_bounds__(32 * kProductWarps) product_f32(const Product32Args args) {
  const int warp =
      static_cast<int>(blockIdx.y) * kProductWarps + static_cast<int>(threadIdx.x) / 32;
  multiply_rows_f32(args, args.weight, warp * kRowsPerWarp, args.rows);
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
    constexpr int kRows = kRowsPerWarp * kProductWarps;
    launch(product_f32, dim3(layout.tiles(), (rows + kRows - 1) / kRows), dim3(32 * kProductWarps),
           0, stream, args);
    return;
  }
  static constexpr auto kLaunchers =
      product_launchers(std::make_index_sequence<std::tuple_size_v<TileShapes>>());
  ProductArgs args = product_args(layout, in, rows, out);
  args.weight = weight.weight;
  args.bias = weight.bias;
  args.arrivals = reinterpret_cast<unsigned*>(workspace.data);
  args.waiting = reinterpret_cast<float4*>(workspace.data + kCounterBytes);
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
