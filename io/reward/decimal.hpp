// Numbers as people and models write them, compared exactly: 72, 1,234.50, -3e4, .5
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::io {

/// A decimal number of any length.
struct Decimal {
  bool negative = false;
  std::string digits;         ///< without zeros at either end; empty: the number is 0
  std::int64_t exponent = 0;  ///< the number is 0.DIGITS times ten to this power

  /// 72 equals 72.0 and 7.2e1.
  bool operator==(const Decimal&) const = default;
  [[nodiscard]] double value() const;
};

/// A number found in a text.
struct FoundDecimal {
  Decimal number;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The first number in text[from, ...): an optional sign, digits (with commas between thousands or
/// without), an optional fraction and an optional power of ten (e5). A sign right behind a letter,
/// digit or closing bracket is taken as an operator: "10-3" holds 10 and 3.
[[nodiscard]] std::optional<FoundDecimal> find_decimal(std::string_view text, std::size_t from = 0);

/// The number that the whole text is, but for white space, a dollar sign before it and a per cent
/// sign or a full stop behind it.
[[nodiscard]] std::optional<Decimal> whole_decimal(std::string_view text);

/// Without ASCII white space at either end.
[[nodiscard]] std::string_view trimmed(std::string_view text);

}  // namespace paceline::io
