// Addresses without memory, for spans that are passed on but never read or written.
#pragma once

#include <cstddef>
#include <span>

namespace paceline::sim {

/// A range of addresses. Reading or writing there is a segmentation fault. Thread-safe.
class AddressRange {
 public:
  /// Throws std::bad_alloc where the process has no free range of this size.
  explicit AddressRange(std::size_t bytes);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  /// The first `bytes` addresses; `bytes` is at most the size of the range.
  [[nodiscard]] std::span<std::byte> first(std::size_t bytes) const { return bytes_.first(bytes); }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace paceline::sim
