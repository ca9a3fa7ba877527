#include "kernels/gpus.hpp"

#include <cuda_runtime_api.h>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/cuda_backend.hpp"

namespace paceline::kernels {

GpuList visible_gpus() {
  GpuList list;
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // clears the error for the next call
    // A missing driver counts as version 0; the runtime is linked in, but the driver is not.
    int driver = 0;
    const bool none = cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0;
    list.why_none = none ? "no NVIDIA driver is installed"
                         : std::string("CUDA finds no device: ") + cudaGetErrorString(code);
    return list;
  }
  if (count == 0) list.why_none = "CUDA finds no device (CUDA_VISIBLE_DEVICES hides them?)";
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    PACELINE_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    const auto block_shared = static_cast<std::uint32_t>(properties.sharedMemPerBlockOptin);
    list.gpus.push_back(
        {properties.name,
         "sm_" + std::to_string(properties.major) + std::to_string(properties.minor),
         properties.totalGlobalMem,
         std::uint64_t{static_cast<unsigned>(properties.pciDomainID)} << 32 |
             static_cast<unsigned>(properties.pciBusID) << 8 |
             static_cast<unsigned>(properties.pciDeviceID),
         static_cast<std::uint32_t>(properties.multiProcessorCount), block_shared,
         unusable_gpu(properties.major, properties.minor, block_shared)});
  }
  return list;
}

std::uint64_t free_gpu_memory(int device) {
  PACELINE_CUDA_CHECK(cudaSetDevice(device));
  std::size_t left = 0;
  std::size_t total = 0;
  PACELINE_CUDA_CHECK(cudaMemGetInfo(&left, &total));
  return left;
}

std::unique_ptr<Backend> make_cuda_backend(int device) {
  const GpuList list = visible_gpus();
  if (device < 0 || device >= static_cast<int>(list.gpus.size())) {
    throw UsageError(list.gpus.empty() ? list.why_none
                                       : "CUDA has no device " + std::to_string(device));
  }
  if (const GpuInfo& gpu = list.gpus[device]; !gpu.why_unusable.empty())
    throw UsageError(gpu.name + ": " + gpu.why_unusable);
  return std::make_unique<cuda::CudaBackend>(device);
}

}  // namespace paceline::kernels
