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
  std::uint32_t multiprocessors = 0;
  std::uint32_t block_shared = 0;  ///< bytes of shared memory that a block of threads may have
  std::string why_unusable;        ///< why the backend cannot compute on it; empty: it can
};

/// What the backend asks of a device: compute capability 8.0 (bf16 tensor cores, copies in the
/// background), and as much shared memory for a block as the least of those have (8.6, 8.9, 12.0).
/// Why this one will not do; empty: it will.
[[nodiscard]] std::string unusable_gpu(int major, int minor, std::uint32_t block_shared);

/// What this process sees, in the order of CUDA's device numbers. Touches no device.
struct GpuList {
  std::vector<GpuInfo> gpus;
  std::string why_none;  ///< what was missing, where there are none
};
[[nodiscard]] GpuList visible_gpus();

/// Device memory that attention may take for one owner of passes (a model, a draft model): `rows`
/// at most, padding included, with so many query heads of this rank.
[[nodiscard]] std::uint64_t attention_workspace(std::uint64_t rows, int heads, int head_dim);

/// Bytes free on a device now. Sets the device up for this process.
[[nodiscard]] std::uint64_t free_gpu_memory(int device);

/// The CUDA backend on a device of visible_gpus(). Throws UsageError where there is none, or one
/// that cannot be used.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend(int device);

}  // namespace paceline::kernels
