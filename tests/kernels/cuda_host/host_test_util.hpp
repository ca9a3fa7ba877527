// Device arrays for the tests of the emulation and of the kernels that run on it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "kernels/cuda/check.hpp"

namespace paceline::cuda_host {

/// An array in device memory: a copy of `values`, or poisoned.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    PACELINE_CUDA_CHECK(cudaMalloc(&data_, size * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    PACELINE_CUDA_CHECK(
        cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  [[nodiscard]] T* data() { return data_; }
  [[nodiscard]] const T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// What it holds after all work issued so far.
  [[nodiscard]] std::vector<T> host() const {
    PACELINE_CUDA_CHECK(cudaDeviceSynchronize());
    std::vector<T> values(size_);
    PACELINE_CUDA_CHECK(
        cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A stream of its own, destroyed at the end.
class TestStream {
 public:
  TestStream() { PACELINE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~TestStream() { cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void synchronize() const { PACELINE_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace paceline::cuda_host
