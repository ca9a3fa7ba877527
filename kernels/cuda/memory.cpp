#include "kernels/cuda/memory.hpp"

#include <string>

#include "kernels/cuda/check.hpp"

namespace paceline::kernels::cuda {
namespace {

/// Returns the size for memory that grows to `bytes`: half as much again, so that it seldom has to
/// grow.
std::size_t grown(std::size_t bytes) { return bytes + bytes / 2; }

}  // namespace

DeviceMemory::DeviceMemory(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, bytes);
  if (code == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // clears the error for the next call
    std::size_t left = 0;
    std::size_t total = 0;
    PACELINE_CUDA_CHECK(cudaMemGetInfo(&left, &total));
    throw Error(ExitCode::internal, "device memory: " + std::to_string(bytes) + " bytes wanted, " +
                                        std::to_string(left) + " of " + std::to_string(total) +
                                        " left; lower engine.kv_memory or engine.max_batch");
  }
  PACELINE_CUDA_CHECK(code);
  data_.reset(static_cast<std::byte*>(memory));
}

// Freeing fails only if the device has failed, and then the next checked call reports it.
void DeviceMemory::Free::operator()(std::byte* memory) const {
  static_cast<void>(cudaFree(memory));
}

PinnedMemory::PinnedMemory(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  PACELINE_CUDA_CHECK(cudaMallocHost(&memory, bytes));
  data_.reset(static_cast<std::byte*>(memory));
}

void PinnedMemory::Free::operator()(std::byte* memory) const {
  static_cast<void>(cudaFreeHost(memory));
}

Event::Event(bool timed) {
  PACELINE_CUDA_CHECK(
      cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming));
}

Event::~Event() { static_cast<void>(cudaEventDestroy(event_)); }

void Event::record(cudaStream_t stream) { PACELINE_CUDA_CHECK(cudaEventRecord(event_, stream)); }

void Event::wait() const { PACELINE_CUDA_CHECK(cudaEventSynchronize(event_)); }

double Event::seconds(const Event& from, const Event& to) {
  float milliseconds = 0;
  PACELINE_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, from.event_, to.event_));
  return milliseconds * 1e-3;
}

std::byte* Stage::room(std::size_t bytes) {
  copied_.wait();
  if (memory_.size() < bytes) memory_ = PinnedMemory(grown(bytes));
  return memory_.data();
}

void Stage::copy(std::byte* to, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  PACELINE_CUDA_CHECK(cudaMemcpyAsync(to, memory_.data(), bytes, cudaMemcpyHostToDevice, stream));
  copied_.record(stream);
}

std::byte* MirroredStage::room(std::size_t bytes, cudaStream_t stream) {
  std::byte* const room = stage_.room(bytes);
  if (mirror_.size() < bytes) {
    PACELINE_CUDA_CHECK(cudaStreamSynchronize(stream));
    mirror_ = DeviceMemory(grown(bytes));  // nothing may throw after the move
  }
  return room;
}

}  // namespace paceline::kernels::cuda
