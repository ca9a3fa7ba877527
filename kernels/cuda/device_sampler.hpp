// Sampling for the CUDA backend, from rows in host memory to results in host memory: rows are sent
// as one copy, and their results are read back as one.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <span>

#include "kernels/backend.hpp"
#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/sample.hpp"

namespace paceline::kernels::cuda {

/// Owns the memory of its calls on the device: a stage for rows, a workspace and the results, which
/// grow with the largest call. Not thread-safe.
class DeviceSampler {
 public:
  /// `wait`: waits for all earlier work of the stream.
  DeviceSampler(cudaStream_t stream, std::function<void()> wait);

  /// See Backend::sample, rank and top.
  void sample(const float* logits, std::size_t stride, int vocab, std::span<const SampleRow> rows,
              std::span<Sampled> out, std::span<TokenId> kept);
  void rank(const float* logits, std::size_t stride, int vocab, std::span<const SampleRow> rows,
            int count, std::span<Ranked> out);
  void top(const float* logits, std::size_t stride, int vocab, int rows, int count,
           std::span<Ranked> out);
  /// Event at the end of the last call's kernels.
  [[nodiscard]] const Event& sampled() const { return sampled_; }

 private:
  void rank(const float* logits, std::size_t stride, int vocab, std::span<const SampleRow> rows,
            int count, RankedAs as, std::span<Ranked> out);
  SampleRows send(std::span<const SampleRow> rows);
  std::byte* workspace(int rows, int vocab);
  template <class T>
  T* results(std::size_t count);
  template <class T>
  std::span<const T> read_results(std::size_t count);

  cudaStream_t stream_;
  std::function<void()> wait_;
  Event sampled_{true};
  MirroredStage rows_stage_;
  DeviceMemory workspace_;
  DeviceMemory results_;
  PinnedMemory results_back_;
};

}  // namespace paceline::kernels::cuda
