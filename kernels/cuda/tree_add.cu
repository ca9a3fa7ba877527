#include "kernels/cuda/tree_add.hpp"

#include <algorithm>

#include "kernels/cuda/launch.hpp"

namespace paceline::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <int kParts>
__global__ void __launch_bounds__(kThreads)
    add_parts(const float* parts, std::size_t count, float* out) {
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    float sums[kParts];
#pragma unroll
    for (int p = 0; p < kParts; ++p) sums[p] = parts[p * count + i];
#pragma unroll
    for (int distance = 1; distance < kParts; distance *= 2) {
#pragma unroll
      for (int p = 0; p < kParts; p += 2 * distance) sums[p] += sums[p + distance];
    }
    out[i] = sums[0];
  }
}

}  // namespace

void tree_add(const float* parts, int count_of_parts, std::size_t count, float* out,
              cudaStream_t stream) {
  if (count == 0) return;
  constexpr std::size_t kMostBlocks = 1024;
  const auto blocks =
      static_cast<unsigned>(std::min<std::size_t>((count + kThreads - 1) / kThreads, kMostBlocks));
  const auto add = [&](auto kernel) {
    launch(kernel, dim3(blocks), dim3(kThreads), 0, stream, parts, count, out);
  };
  switch (count_of_parts) {
    case 2:
      return add(add_parts<2>);
    case 4:
      return add(add_parts<4>);
    case 8:
      return add(add_parts<8>);
    case 16:
      return add(add_parts<16>);
    case 32:
      return add(add_parts<32>);
    case 64:
      return add(add_parts<64>);
    default:
      throw Error(ExitCode::internal, "tree_add: " + std::to_string(count_of_parts) + " parts");
  }
}

}  // namespace paceline::kernels::cuda
