// What benchmarks that call kernels themselves share: data on the device, and times of launches.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/memory.hpp"

namespace paceline::bench {

/// bf16 in (-1, 1).
inline std::vector<std::byte> random_bf16(std::size_t n, std::uint32_t seed) {
  std::vector<std::byte> out(n * 2);
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::size_t i = 0; i < n; ++i) {
    state = state * 1664525U + 1013904223U;
    const float x = static_cast<float>(state >> 8) / 8388608.0F - 1.0F;
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const auto half = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(out.data() + 2 * i, &half, 2);
  }
  return out;
}

inline kernels::cuda::DeviceMemory on_device(const std::vector<std::byte>& from) {
  kernels::cuda::DeviceMemory memory(from.size());
  PACELINE_CUDA_CHECK(cudaMemcpy(memory.data(), from.data(), from.size(), cudaMemcpyHostToDevice));
  // The copy may return before its last part has landed, and other streams do not wait for it.
  PACELINE_CUDA_CHECK(cudaDeviceSynchronize());
  return memory;
}

/// [n] on the device: what random_bf16() gives, over again after 64 MiB of it.
inline kernels::cuda::DeviceMemory random_on_device(std::size_t n, std::uint32_t seed) {
  constexpr std::size_t kPeriod = std::size_t{32} << 20;
  const std::vector<std::byte> values = random_bf16(std::min(n, kPeriod), seed);
  kernels::cuda::DeviceMemory memory(2 * n);
  for (std::size_t at = 0; at < memory.size(); at += values.size()) {
    PACELINE_CUDA_CHECK(cudaMemcpy(memory.data() + at, values.data(),
                                   std::min(values.size(), memory.size() - at),
                                   cudaMemcpyHostToDevice));
  }
  PACELINE_CUDA_CHECK(cudaDeviceSynchronize());
  return memory;
}

class Stream {
 public:
  Stream() { PACELINE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Seconds that what `launch` puts into the stream takes, the best of several runs.
template <class Launch>
double best_on_device(const Stream& stream, const Launch& launch) {
  using kernels::cuda::Event;
  double best = 1e9;
  for (int run = 0; run < 4; ++run) {
    Event start(true);
    Event end(true);
    start.record(stream);
    launch();
    end.record(stream);
    end.wait();
    best = std::min(best, Event::seconds(start, end));
  }
  return best;
}

/// Seconds of one of the launches that `record` issues, in a graph of many.
template <class Record>
double time_of(const Stream& stream, const Record& record) {
  constexpr int kLaunches = 20;
  record(0);  // what a library loads at its first launch, it cannot load in a capture
  PACELINE_CUDA_CHECK(cudaStreamSynchronize(stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  PACELINE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kLaunches; ++i) record(i);
  PACELINE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  PACELINE_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  const double seconds =
      best_on_device(stream, [&] { PACELINE_CUDA_CHECK(cudaGraphLaunch(exec, stream)); });
  PACELINE_CUDA_CHECK(cudaGraphExecDestroy(exec));
  PACELINE_CUDA_CHECK(cudaGraphDestroy(graph));
  return seconds / kLaunches;
}

}  // namespace paceline::bench
