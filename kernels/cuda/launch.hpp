// Checked kernel launches. Only this function starts kernels, and kernels keep all shared memory in
// dynamic_shared(). So a host compiler can compile them as plain C++ (tests/kernels/cuda_host).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/ptx.cuh"

namespace paceline::kernels::cuda {

/// Dynamic shared memory that a kernel gets without requesting it.
inline constexpr std::size_t kDefaultSharedBytes = 48 * 1024;

/// Launches a kernel. The attribute belongs to the kernel on the current device, so it is set again
/// each time. This costs less than a launch, and steps mostly replay graphs.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
  if (dynamic_shared_bytes > kDefaultSharedBytes) {
    PACELINE_CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(dynamic_shared_bytes)));
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = dynamic_shared_bytes;
  config.stream = stream;
  PACELINE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace paceline::kernels::cuda
