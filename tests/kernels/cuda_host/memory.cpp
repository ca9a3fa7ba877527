// Memory of the emulated device and pinned memory: allocated, told apart, poisoned and copied.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "include/cuda_runtime.h"
#include "runtime.hpp"
#include "streams.hpp"

namespace paceline::cuda_host {
namespace {

constexpr std::size_t kPoisonBytes = std::size_t{64} << 20;  ///< of an allocation; NaN

struct Allocation {
  std::size_t bytes = 0;
  bool device = false;
  bool mapped = false;  ///< by driver.cpp
};

struct Memory {
  std::map<const std::byte*, Allocation> allocations;
  std::size_t used = 0;  ///< of the device
};
Memory& memory() {
  static Memory instance;
  return instance;
}

const Allocation* allocation_of(const void* pointer, std::size_t bytes, bool& fits) {
  const auto& allocations = memory().allocations;
  const auto* at = static_cast<const std::byte*>(pointer);
  auto next = allocations.upper_bound(at);
  fits = true;
  if (next == allocations.begin()) return nullptr;
  const auto& [begin, allocation] = *std::prev(next);
  if (at >= begin + allocation.bytes) return nullptr;
  fits = at + bytes <= begin + allocation.bytes;
  return &allocation;
}

enum class Place { device, pinned, pageable, outside };
Place place_of(const void* pointer, std::size_t bytes) {
  bool fits = true;
  const Allocation* allocation = allocation_of(pointer, bytes, fits);
  if (!fits) return Place::outside;
  if (allocation == nullptr) return Place::pageable;
  return allocation->device ? Place::device : Place::pinned;
}

bool kind_matches(cudaMemcpyKind kind, Place to, Place from) {
  if (to == Place::outside || from == Place::outside) return false;
  const bool to_device = to == Place::device;
  const bool from_device = from == Place::device;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

cudaError_t allocate(void** pointer, std::size_t bytes, bool device) {
  Memory& state = memory();
  const std::scoped_lock lock(runtime_mutex());
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (device && bytes > kDeviceBytes - state.used) return result(cudaErrorMemoryAllocation);
  if (posix_memalign(pointer, 256, bytes) != 0) return result(cudaErrorMemoryAllocation);
  std::memset(*pointer, 0xFF, std::min(bytes, kPoisonBytes));
  if (device) state.used += bytes;
  state.allocations[static_cast<const std::byte*>(*pointer)] = {bytes, device};
  return cudaSuccess;
}

cudaError_t release(void* pointer, bool device) {
  Memory& state = memory();
  const std::scoped_lock lock(runtime_mutex());
  if (pointer == nullptr) return cudaSuccess;
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  const auto found = state.allocations.find(static_cast<const std::byte*>(pointer));
  if (found == state.allocations.end() || found->second.device != device || found->second.mapped) {
    return result(cudaErrorInvalidValue);
  }
  drain_all(false);
  if (device) state.used -= found->second.bytes;
  state.allocations.erase(found);
  std::free(pointer);
  return cudaSuccess;
}

}  // namespace

bool take_device_bytes(std::size_t bytes) {
  Memory& state = memory();
  const std::scoped_lock lock(runtime_mutex());
  if (bytes > kDeviceBytes - state.used) return false;
  state.used += bytes;
  return true;
}

void give_device_bytes(std::size_t bytes) {
  const std::scoped_lock lock(runtime_mutex());
  memory().used -= bytes;
}

void mapped_device_memory(void* at, std::size_t bytes) {
  Memory& state = memory();
  const std::scoped_lock lock(runtime_mutex());
  const auto* begin = static_cast<const std::byte*>(at);
  const auto next = state.allocations.upper_bound(begin);
  if (next != state.allocations.begin()) {
    auto& [before, allocation] = *std::prev(next);
    if (allocation.mapped && before + allocation.bytes == begin) {
      allocation.bytes += bytes;
      return;
    }
  }
  state.allocations[begin] = {bytes, true, true};
}

bool unmapped_device_memory(void* at, std::size_t bytes) {
  Memory& state = memory();
  const std::scoped_lock lock(runtime_mutex());
  const auto* begin = static_cast<const std::byte*>(at);
  const auto next = state.allocations.upper_bound(begin);
  if (next == state.allocations.begin()) return false;
  const auto found = std::prev(next);
  if (!found->second.mapped || found->first + found->second.bytes != begin + bytes) return false;
  drain_all(false);
  found->second.bytes -= bytes;
  if (found->second.bytes == 0) state.allocations.erase(found);
  return true;
}

}  // namespace paceline::cuda_host

using namespace paceline::cuda_host;

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::scoped_lock lock(runtime_mutex());
  *free = kDeviceBytes - memory().used;
  *total = kDeviceBytes;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** pointer, std::size_t bytes) { return allocate(pointer, bytes, true); }
cudaError_t cudaFree(void* pointer) { return release(pointer, true); }
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return allocate(pointer, bytes, false);
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return allocate(pointer, bytes, false);
}
cudaError_t cudaFreeHost(void* pointer) { return release(pointer, false); }

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const std::scoped_lock lock(runtime_mutex());
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  if (!kind_matches(kind, place_of(to, bytes), place_of(from, bytes))) {
    return result(cudaErrorInvalidValue);
  }
  drain_all(true);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  const std::scoped_lock lock(runtime_mutex());
  if (width == 0 || height == 0) return cudaSuccess;
  if (to_pitch < width || from_pitch < width) return result(cudaErrorInvalidValue);
  const Place to_place = place_of(to, to_pitch * (height - 1) + width);
  const Place from_place = place_of(from, from_pitch * (height - 1) + width);
  if (!kind_matches(kind, to_place, from_place)) return result(cudaErrorInvalidValue);
  const auto copy = [=](const std::byte* source) {
    for (std::size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<std::byte*>(to) + row * to_pitch, source + row * from_pitch, width);
    }
  };
  const auto* source = static_cast<const std::byte*>(from);
  if (from_place == Place::pageable && !recorded(stream)) {
    // Pageable memory is read before the call returns.
    std::vector<std::byte> staged(source, source + from_pitch * (height - 1) + width);
    return enqueue(stream, at_once([copy, staged = std::move(staged)] { copy(staged.data()); }));
  }
  const cudaError_t error = enqueue(stream, at_once([copy, source] { copy(source); }));
  // Pageable memory is written before the call returns.
  if (error == cudaSuccess && to_place == Place::pageable && !recorded(stream) &&
      stream != nullptr) {
    drain(stream);
  }
  return error;
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const std::scoped_lock lock(runtime_mutex());
  if (bytes == 0) return cudaSuccess;
  if (place_of(to, bytes) != Place::device) return result(cudaErrorInvalidValue);
  return enqueue(stream, at_once([=] { std::memset(to, value, bytes); }));
}
