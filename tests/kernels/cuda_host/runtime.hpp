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

/// Puts into the stream what the device does together with other processes' devices: called again
/// and again, whenever somebody waits for the stream or asks how far it is, until it says that it
/// is done; and the same once more for each launch of a graph that it was recorded in.
cudaError_t enqueue_polled(std::function<bool()> operation, cudaStream_t stream);

/// Of the device's memory, what is mapped to addresses: false where there is not so much left.
[[nodiscard]] bool take_device_bytes(std::size_t bytes);
void give_device_bytes(std::size_t bytes);
/// There is device memory at these addresses, or no longer: false where there was none, or where it
/// was not mapped. Memory that adjoins is one. Work that was put into streams before is done first.
void mapped_device_memory(void* at, std::size_t bytes);
[[nodiscard]] bool unmapped_device_memory(void* at, std::size_t bytes);

/// Kernels run by this process so far.
[[nodiscard]] long launches();

}  // namespace paceline::cuda_host
