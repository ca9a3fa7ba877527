// Operations that towers for pictures need in addition to a decoder's. A row's result depends only
// on the row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/backend.hpp"

namespace paceline::kernels::cuda {

/// See Operations::add_layernorm(). All pointers are to device memory.
void add_layernorm(float* x, const float* delta, const float* weight, const float* bias,
                   float epsilon, int rows, int width, DType dtype, std::byte* out,
                   cudaStream_t stream);

/// See Operations::gelu().
void gelu(Gelu kind, const float* in, int rows, int width, DType dtype, std::byte* out,
          cudaStream_t stream);

}  // namespace paceline::kernels::cuda
