// GPUs of this machine, for choosing a backend. There in every build; one without CUDA finds none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels {

struct GpuInfo {
  std::string name;          ///< "NVIDIA H200"
  std::string isa;           ///< "sm_90"
  std::uint64_t memory = 0;  ///< bytes
  std::uint64_t place = 0;   ///< PCI address: the same device has the same in every process
};

/// What this process sees, in the order of CUDA's device numbers. Touches no device.
struct GpuList {
  std::vector<GpuInfo> gpus;
  std::string why_none;  ///< what was missing, where there are none
};
[[nodiscard]] GpuList visible_gpus();

/// Bytes free on a device now. Sets the device up for this process.
[[nodiscard]] std::uint64_t free_gpu_memory(int device);

/// The CUDA backend on a device of visible_gpus(). Throws UsageError where there is none.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend(int device);

}  // namespace paceline::kernels
