// Units of the products by experts: each expert's matrix times the rows that chose it. Their number
// is known only on the device, so that a recorded pass is valid for any choice.
#pragma once

#include <cstddef>

#include "kernels/cuda/experts.hpp"
#include "kernels/cuda/product_parts.cuh"

namespace paceline::kernels::cuda {

struct ExpertUnit {
  const std::byte* matrix;
  int feature_tile;
  int first;  ///< first row
  int end;    ///< row after the expert's last
  static constexpr int first_segment = 0;

  __device__ const std::byte* weight(const ProductArgs&) const { return matrix; }
  template <class Shape>
  __device__ int first_row() const {
    return first;
  }
  __device__ int end_row(const ProductArgs&) const { return end; }
};

/// Units ordered by expert, feature tile and row tile. Row tiles come last, so that a weight is
/// read from memory once.
struct ExpertUnits {
  static constexpr bool kShared = false;

  const int* starts;     ///< see ExpertPlaces
  const int* row_tiles;  ///< see ExpertPlaces
  int experts;
  int tile_rows;  ///< rows of a tile of the block's shape
  ExpertMatrices matrices;

  __device__ int count(const ProductArgs& args) const {
    return row_tiles[experts] * args.feature_tiles;
  }
  __device__ ExpertUnit unit(const ProductArgs& args, int index) const {
    const int wanted = index / args.feature_tiles;
    int expert = 0;  // becomes the last with row_tiles[expert] <= wanted
    for (int end = experts; end - expert > 1;) {
      const int middle = (expert + end) / 2;
      (row_tiles[middle] <= wanted ? expert : end) = middle;
    }
    const int within = index - row_tiles[expert] * args.feature_tiles;
    const int height = row_tiles[expert + 1] - row_tiles[expert];
    return {matrices.of[expert], within / height, starts[expert] + within % height * tile_rows,
            starts[expert + 1]};
  }
};

}  // namespace paceline::kernels::cuda
