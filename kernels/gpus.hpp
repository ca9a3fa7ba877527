// GPUs of this machine, for choosing a backend. Exists in every build; a build without CUDA finds
// none.
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
  std::uint64_t place = 0;   ///< PCI address, which is the same in every process
  std::uint32_t multiprocessors = 0;
  std::uint32_t block_shared = 0;  ///< bytes of shared memory that a block of threads may have
  std::string why_unusable;        ///< why the backend cannot compute on it; empty: it can
};

/// The reason why a device cannot be used; empty: it can. The backend needs compute capability 8.0
/// or later (bf16 tensor cores, asynchronous copies), and at least as much shared memory for a
/// block as the smallest of these devices have (8.6, 8.9, 12.0).
[[nodiscard]] std::string unusable_gpu(int major, int minor, std::uint32_t block_shared);

/// The GPUs that this process sees, in the order of CUDA's device numbers. visible_gpus()
/// initialises no device.
struct GpuList {
  std::vector<GpuInfo> gpus;
  std::string why_none;  ///< the reason where there are none
};
[[nodiscard]] GpuList visible_gpus();

/// Largest device memory of attention, in bytes, for one owner of passes (a model, a draft model).
/// `rows`: most rows, padding included. `heads`: query heads of this rank.
[[nodiscard]] std::uint64_t attention_workspace(std::uint64_t rows, int heads, int head_dim);

/// Bytes free on a device now. Sets the device up for this process.
[[nodiscard]] std::uint64_t free_gpu_memory(int device);

/// Makes the CUDA backend on a device of visible_gpus(). Throws UsageError where there is none, or
/// where it cannot be used.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend(int device);

}  // namespace paceline::kernels
