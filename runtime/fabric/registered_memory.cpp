#include "runtime/fabric/registered_memory.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace paceline::fabric {

RegisteredMemory::~RegisteredMemory() {
  for (const auto& [memory, region] : regions_) {
    if (region.registration != nullptr) ucp_mem_unmap(context_.get(), region.registration);
  }
}

void RegisteredMemory::add(std::span<std::byte> region) {
  if (regions_.contains(region.data())) throw std::logic_error("memory is registered already");
  Region made{.size = region.size(), .registration = nullptr, .staged = false};
  made.staged = staging_ != nullptr && staging_->is_device(region.data());
  if (!made.staged) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = region.data();
    params.length = region.size();
    check_ucx(
        ucp_mem_map(context_.get(), &params, &made.registration),
        fmt::format("registering {} bytes of memory (is `ulimit -l` too small?)", region.size()));
  }
  regions_.emplace(region.data(), made);
}

void RegisteredMemory::remove(std::span<std::byte> region) {
  const auto found = regions_.find(region.data());
  if (found == regions_.end() || found->second.size != region.size())
    throw std::logic_error("no such region is registered");
  if (found->second.registration != nullptr)
    check_ucx(ucp_mem_unmap(context_.get(), found->second.registration), "forgetting memory");
  regions_.erase(found);
}

Piece RegisteredMemory::piece_of(const std::byte* memory, std::size_t size) const {
  Piece piece{const_cast<std::byte*>(memory), size, nullptr, false};  // UCX's calls take no const
  auto region = regions_.upper_bound(memory);
  if (region == regions_.begin()) return piece;
  --region;
  if (memory + size > region->first + region->second.size) return piece;
  piece.registration = region->second.registration;
  piece.staged = region->second.staged;
  return piece;
}

}  // namespace paceline::fabric
