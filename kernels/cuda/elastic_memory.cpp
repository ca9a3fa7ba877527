#include "kernels/cuda/elastic_memory.hpp"

#include <string>

#include "kernels/cuda/driver.hpp"

namespace paceline::kernels::cuda {
namespace {

struct Driver {
#define PACELINE_OF_DRIVER(name) \
  decltype(&::cu##name) name = of_driver<decltype(::cu##name)>("cu" #name)
  PACELINE_OF_DRIVER(MemGetAllocationGranularity);
  PACELINE_OF_DRIVER(MemAddressReserve);
  PACELINE_OF_DRIVER(MemAddressFree);
  PACELINE_OF_DRIVER(MemCreate);
  PACELINE_OF_DRIVER(MemRelease);
  PACELINE_OF_DRIVER(MemMap);
  PACELINE_OF_DRIVER(MemUnmap);
  PACELINE_OF_DRIVER(MemSetAccess);
#undef PACELINE_OF_DRIVER
};
const Driver& driver() {
  static const Driver instance;
  return instance;
}

void check(CUresult code, const char* what, std::size_t bytes) {
  if (code == CUDA_SUCCESS) return;
  throw Error(ExitCode::internal, std::string(what) + " of " + std::to_string(bytes) +
                                      " bytes of device memory: CUDA driver error " +
                                      std::to_string(static_cast<int>(code)));
}

CUmemAllocationProp properties(int device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  return prop;
}

}  // namespace

ElasticMemory::ElasticMemory(int device, std::size_t most) : device_(device) {
  const CUmemAllocationProp prop = properties(device);
  check(driver().MemGetAllocationGranularity(&page_, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "pages", most);
  reserved_ = (most + page_ - 1) / page_ * page_;
  if (reserved_ > 0)
    check(driver().MemAddressReserve(&base_, reserved_, 0, 0, 0), "addresses", reserved_);
}

// Giving back fails only if the device has failed, and then the next checked call reports it.
ElasticMemory::~ElasticMemory() {
  shrink(0);
  if (reserved_ > 0) static_cast<void>(driver().MemAddressFree(base_, reserved_));
}

void ElasticMemory::grow(std::size_t bytes) {
  if (bytes > reserved_)
    throw Error(ExitCode::internal, "memory that is to grow past what was reserved");
  if (bytes <= mapped_) return;
  Piece piece;
  piece.bytes = (bytes - mapped_ + page_ - 1) / page_ * page_;
  const CUmemAllocationProp prop = properties(device_);
  check(driver().MemCreate(&piece.handle, piece.bytes, &prop, 0), "taking", piece.bytes);
  const CUdeviceptr at = base_ + mapped_;
  if (const CUresult code = driver().MemMap(at, piece.bytes, 0, piece.handle, 0);
      code != CUDA_SUCCESS) {
    static_cast<void>(driver().MemRelease(piece.handle));
    check(code, "mapping", piece.bytes);
  }
  mapped_ += piece.bytes;
  pieces_.push_back(piece);
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(driver().MemSetAccess(at, piece.bytes, &access, 1), "using", piece.bytes);
}

void ElasticMemory::shrink(std::size_t bytes) {
  while (!pieces_.empty() && mapped_ - pieces_.back().bytes >= bytes) {
    const Piece piece = pieces_.back();
    pieces_.pop_back();
    mapped_ -= piece.bytes;
    static_cast<void>(driver().MemUnmap(base_ + mapped_, piece.bytes));
    static_cast<void>(driver().MemRelease(piece.handle));
  }
}

}  // namespace paceline::kernels::cuda
