#include "runtime/sim/address_range.hpp"

#include <sys/mman.h>

#include <new>

namespace paceline::sim {

AddressRange::AddressRange(std::size_t bytes) {
  if (bytes == 0) return;
  void* const at =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  bytes_ = {static_cast<std::byte*>(at), bytes};
}

AddressRange::~AddressRange() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace paceline::sim
