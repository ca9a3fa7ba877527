// Addresses without memory, for spans that are named and never looked at.
#pragma once

#include <cstddef>
#include <span>

namespace paceline::sim {

/// A range of addresses; reading or writing them ends the program. Thread-safe.
class AddressRange {
 public:
  /// Throws std::bad_alloc where the process has no such range.
  explicit AddressRange(std::size_t bytes);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  /// The first `bytes` addresses, at most all.
  [[nodiscard]] std::span<std::byte> first(std::size_t bytes) const { return bytes_.first(bytes); }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace paceline::sim
