// The canonical sum over parts, for collectives.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace paceline::kernels::cuda {

/// out[i] = the sum of parts[p][i] over p in one binary tree: neighbours first, then pairs of
/// pairs. parts: [parts][count], with `parts` a power of two from 2 to 64. out: [count], either
/// disjoint from the parts or one whole part. Both are in device memory.
void tree_add(const float* parts, int count_of_parts, std::size_t count, float* out,
              cudaStream_t stream);

}  // namespace paceline::kernels::cuda
