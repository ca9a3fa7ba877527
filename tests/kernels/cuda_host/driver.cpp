// Maps of rows, and device memory that is mapped to addresses. A range of addresses is the host's,
// without access where nothing is mapped: whoever touches what was given back ends there.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

#include "include/cuda.h"
#include "include/cuda_runtime.h"
#include "runtime.hpp"

namespace {

constexpr std::size_t kPage = std::size_t{64} << 10;

struct State {
  std::mutex mutex;
  std::map<CUdeviceptr, std::size_t> ranges;
  std::map<CUmemGenericAllocationHandle, std::size_t> pieces;
  CUmemGenericAllocationHandle last = 0;
};
State& state() {
  static State instance;
  return instance;
}
void* host(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }

}  // namespace

CUresult cuMemGetAllocationGranularity(std::size_t* granularity, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *granularity = kPage;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, std::size_t bytes, std::size_t, CUdeviceptr,
                             unsigned long long) {
  if (bytes == 0 || bytes % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::scoped_lock lock(state().mutex);
  *pointer = reinterpret_cast<CUdeviceptr>(at);
  state().ranges[*pointer] = bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, std::size_t bytes) {
  const std::scoped_lock lock(state().mutex);
  const auto range = state().ranges.find(pointer);
  if (range == state().ranges.end() || range->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  state().ranges.erase(range);
  munmap(host(pointer), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp*, unsigned long long) {
  if (bytes == 0 || bytes % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!paceline::cuda_host::take_device_bytes(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::scoped_lock lock(state().mutex);
  *handle = ++state().last;
  state().pieces[*handle] = bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::scoped_lock lock(state().mutex);
  const auto piece = state().pieces.find(handle);
  if (piece == state().pieces.end()) return CUDA_ERROR_INVALID_VALUE;
  paceline::cuda_host::give_device_bytes(piece->second);
  state().pieces.erase(piece);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  const std::scoped_lock lock(state().mutex);
  const auto piece = state().pieces.find(handle);
  const auto range = state().ranges.upper_bound(pointer);
  const bool there = range != state().ranges.begin() &&
                     pointer + bytes <= std::prev(range)->first + std::prev(range)->second;
  if (!there || piece == state().pieces.end() || offset != 0 || piece->second != bytes)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* desc,
                        std::size_t count) {
  if (count != 1 || desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
      mprotect(host(pointer), bytes, PROT_READ | PROT_WRITE) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  std::memset(host(pointer), 0xFF, bytes);  // nobody said what is in it
  paceline::cuda_host::mapped_device_memory(host(pointer), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr pointer, std::size_t bytes) {
  if (!paceline::cuda_host::unmapped_device_memory(host(pointer), bytes))
    return CUDA_ERROR_INVALID_VALUE;
  madvise(host(pointer), bytes, MADV_DONTNEED);
  return mprotect(host(pointer), bytes, PROT_NONE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* base, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const bool known = type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 && rank == 2 &&
                     swizzle == CU_TENSOR_MAP_SWIZZLE_128B && box[0] == 64;
  const bool allowed = reinterpret_cast<std::uintptr_t>(base) % 16 == 0 && strides[0] % 16 == 0 &&
                       sizes[0] > 0 && sizes[1] > 0 && box[1] > 0 && box[1] <= 256 &&
                       steps[0] == 1 && steps[1] == 1;
  if (!known || !allowed) return CUDA_ERROR_INVALID_VALUE;
  *map = {static_cast<const std::byte*>(base),
          static_cast<long long>(sizes[0]),
          static_cast<long long>(sizes[1]),
          static_cast<long long>(strides[0]),
          static_cast<int>(box[0]),
          static_cast<int>(box[1])};
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* how) {
  static const std::map<std::string, void*> functions = {
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&cuMemGetAllocationGranularity)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(&cuMemAddressReserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(&cuMemAddressFree)},
      {"cuMemCreate", reinterpret_cast<void*>(&cuMemCreate)},
      {"cuMemRelease", reinterpret_cast<void*>(&cuMemRelease)},
      {"cuMemMap", reinterpret_cast<void*>(&cuMemMap)},
      {"cuMemUnmap", reinterpret_cast<void*>(&cuMemUnmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(&cuMemSetAccess)},
      {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(&cuTensorMapEncodeTiled)}};
  const auto found = functions.find(name);
  *function = found == functions.end() ? nullptr : found->second;
  *how =
      found == functions.end() ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
