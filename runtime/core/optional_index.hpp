// Values that may be absent: an index, and a setting that is left to the program.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

namespace paceline {

/// An index, or none. It has an index's size and form (-1: none), so a message can hold rows of it
/// as plain bytes, whatever a rank sends.
class OptionalIndex {
 public:
  constexpr OptionalIndex() = default;
  constexpr OptionalIndex(std::int32_t index) : value_(index) {}  // NOLINT: implicit
  [[nodiscard]] constexpr explicit operator bool() const { return value_ >= 0; }
  /// The index; only if there is one.
  [[nodiscard]] constexpr std::int32_t operator*() const { return value_; }
  friend constexpr auto operator<=>(OptionalIndex, OptionalIndex) = default;

 private:
  std::int32_t value_ = -1;
};

/// A value that may be left to the program; absent: `auto`.
template <typename T>
using Auto = std::optional<T>;

}  // namespace paceline
