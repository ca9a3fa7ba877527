// What the emulated runtime does with a launch.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "block.hpp"
#include "include/cuda_runtime_api.h"

namespace paceline::cuda_host {

struct Launch {
  Extent grid;
  Extent block;  ///< threads
  std::size_t shared_bytes = 0;
  const void* function = nullptr;
  const char* name = "";  ///< of the kernel's type
  std::function<void()> thread;
};

/// Checks the launch as CUDA would and puts it into the stream.
cudaError_t enqueue_kernel(Launch launch, cudaStream_t stream);

/// Kernels run by this process so far.
[[nodiscard]] long launches();

}  // namespace paceline::cuda_host
