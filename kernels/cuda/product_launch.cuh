// Launches of the bf16 product for any tile and kind of units.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/product.cuh"
#include "kernels/cuda/product_warpgroups.cuh"
#include "kernels/cuda/row_map.hpp"

namespace paceline::kernels::cuda {

/// Returns the arguments of a product with a weight of this layout, without the weight itself, its
/// bias, its tiles and its sums. in, rows, out: see ProductArgs.
inline ProductArgs product_args(const LinearLayout& layout, const std::byte* in, int rows,
                                void* out) {
  ProductArgs args{};
  args.in = in;
  args.out = out;
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
  args.splits = 1;
  return args;
}

template <class Shape, class Units>
void start_product(int grid, const ProductArgs& args, const Units& units, cudaStream_t stream) {
  if constexpr (Shape::kWarpgroups) {
    launch(product_warpgroups<Shape, Units>, dim3(grid), dim3(Shape::kThreads), Shape::kSharedBytes,
           stream, args, units, row_map(args.in, args.rows, args.k, Shape::kRows));
  } else {
    launch(product<Shape, Units>, dim3(grid), dim3(Shape::kThreads), Shape::kSharedBytes, stream,
           args, units);
  }
}

}  // namespace paceline::kernels::cuda
