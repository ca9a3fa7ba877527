// Buffers in device memory, as the CUDA backend hands them out.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <utility>

#include "kernels/backend.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/elastic_memory.hpp"
#include "kernels/cuda/memory.hpp"

namespace paceline::kernels::cuda {

class DeviceBuffer final : public Buffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : memory_(bytes) {}
  [[nodiscard]] std::byte* data() override { return memory_.data(); }
  [[nodiscard]] std::size_t size() const override { return memory_.size(); }

 private:
  DeviceMemory memory_;
};

class ElasticDeviceBuffer final : public ElasticBuffer {
 public:
  ElasticDeviceBuffer(int device, cudaStream_t stream, std::size_t bytes, std::size_t most)
      : memory_(device, most), stream_(stream) {
    resize(bytes);
  }
  [[nodiscard]] std::byte* data() override { return memory_.data(); }
  [[nodiscard]] std::size_t size() const override { return size_; }
  void resize(std::size_t bytes) override {
    PACELINE_CUDA_CHECK(cudaStreamSynchronize(stream_));
    memory_.grow(bytes);
    memory_.shrink(bytes);
    if (bytes > size_)
      PACELINE_CUDA_CHECK(cudaMemsetAsync(data() + size_, 0, bytes - size_, stream_));
    size_ = bytes;
  }

 private:
  ElasticMemory memory_;
  cudaStream_t stream_;
  std::size_t size_ = 0;
};

/// Memory of a fixed size: plain memory, which every transport of a fabric can use.
class FixedDeviceBuffer final : public ElasticBuffer {
 public:
  explicit FixedDeviceBuffer(std::unique_ptr<Buffer> buffer) : buffer_(std::move(buffer)) {}
  [[nodiscard]] std::byte* data() override { return buffer_->data(); }
  [[nodiscard]] std::size_t size() const override { return buffer_->size(); }
  void resize(std::size_t bytes) override {
    if (bytes != size()) throw Error(ExitCode::internal, "memory that was to stay as it is");
  }

 private:
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace paceline::kernels::cuda
