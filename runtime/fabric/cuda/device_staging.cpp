#include "runtime/fabric/device_staging.hpp"

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/memory.hpp"

namespace paceline::fabric {
namespace {

/// Staging with a CUDA stream of its own, so that copies wait for no kernel. A process uses one
/// device.
class CudaStaging final : public DeviceStaging {
 public:
  ~CudaStaging() override {
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }
  [[nodiscard]] bool is_device(const std::byte* memory) override {
    cudaPointerAttributes attributes{};
    PACELINE_CUDA_CHECK(cudaPointerGetAttributes(&attributes, memory));
    if (attributes.type != cudaMemoryTypeDevice) return false;
    device_ = attributes.device;
    return true;
  }
  [[nodiscard]] std::byte* allocate() override { return memory_.emplace_back(kBytes).data(); }
  void to_host(std::byte* host, const std::byte* device, std::size_t bytes) override {
    copy(host, device, bytes, cudaMemcpyDeviceToHost);
  }
  void to_device(std::byte* device, const std::byte* host, std::size_t bytes) override {
    copy(device, host, bytes, cudaMemcpyHostToDevice);
  }

 private:
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (stream_ == nullptr) {  // made here, as each thread has its own current device
      PACELINE_CUDA_CHECK(cudaSetDevice(device_));
      PACELINE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    }
    PACELINE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream_));
    PACELINE_CUDA_CHECK(cudaStreamSynchronize(stream_));
  }

  int device_ = 0;  ///< device of the memory that is_device() saw last
  cudaStream_t stream_ = nullptr;
  std::vector<kernels::cuda::PinnedMemory> memory_;
};

}  // namespace

std::unique_ptr<DeviceStaging> make_device_staging() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return nullptr;
  return std::make_unique<CudaStaging>();
}

}  // namespace paceline::fabric
