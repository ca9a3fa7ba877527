// Launches of the products by experts.
#include <array>
#include <tuple>
#include <utility>

#include "kernels/cuda/experts.hpp"
#include "kernels/cuda/product_experts.cuh"
#include "kernels/cuda/product_f32.cuh"
#include "kernels/cuda/product_launch.cuh"

namespace paceline::kernels::cuda {
namespace {

using Launcher = void (*)(int grid, ProductArgs args, ExpertUnits units, cudaStream_t stream);

template <class Shape>
void launch_experts(int grid, ProductArgs args, ExpertUnits units, cudaStream_t stream) {
  args.feature_tiles = (args.n + Shape::kFeatures - 1) / Shape::kFeatures;
  units.tile_rows = Shape::kRows;
  start_product<Shape>(grid, args, units, stream);
}

/// Entries by index into TileShapes; null for tiles that are not used for experts.
template <std::size_t... I>
constexpr auto launchers(std::index_sequence<I...>) {
  std::array<Launcher, std::tuple_size_v<TileShapes>> all{};
  ((all[kExpertShapes[I]] = &launch_experts<std::tuple_element_t<kExpertShapes[I], TileShapes>>),
   ...);
  return all;
}

/// Computes one tile of features of one expert in each block, for all its rows.
__global__ void __launch_bounds__(32 * kProductWarps)
    product_experts_f32(const Product32Args args, const int* starts,
                        const __grid_constant__ ExpertMatrices matrices) {
  const int expert = static_cast<int>(blockIdx.y);
  const auto* matrix = reinterpret_cast<const float*>(matrices.of[expert]);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int end = starts[expert + 1];
  for (int row = starts[expert] + warp * kRowsPerWarp; row < end;
       row += kProductWarps * kRowsPerWarp) {
    multiply_rows_f32(args, matrix, row, end);
  }
}

}  // namespace

void multiply_experts(const LinearPlan& plan, const LinearLayout& layout,
                      const ExpertMatrices& matrices, int count, const ExpertPlaces& places,
                      const std::byte* in, int most, void* out, cudaStream_t stream) {
  if (layout.dtype == DType::f32) {
    Product32Args args{};
    args.in = reinterpret_cast<const float*>(in);
    args.out = out;
    args.rows = most;
    args.n = layout.n;
    args.k = layout.k;
    args.segments = layout.segments;
    args.gated = layout.gated;
    launch(product_experts_f32, dim3(layout.tiles(), static_cast<unsigned>(count)),
           dim3(32 * kProductWarps), 0, stream, args, places.starts, matrices);
    return;
  }
  static constexpr auto kLaunchers =
      launchers(std::make_index_sequence<std::size(kExpertShapes)>());
  kLaunchers.at(plan.shape)(plan.grid, product_args(layout, in, most, out),
                            {places.starts, places.row_tiles, count, 0, matrices}, stream);
}

}  // namespace paceline::kernels::cuda
