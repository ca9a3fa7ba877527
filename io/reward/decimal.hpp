// Numbers as spelled by people and models, compared exactly: 72, 1,234.50, -3e4, .5
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

  /// 72, 72.0 and 7.2e1 are equal.
  bool operator==(const Decimal&) const = default;
  [[nodiscard]] double value() const;
};

/// A number found in a text.
struct FoundDecimal {
  Decimal number;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The first number in text[from, ...): an optional sign, digits (with or without commas between
/// thousands), an optional fraction and an optional power of ten (e5). A sign directly after a
/// letter, digit or closing bracket is an operator: "10-3" holds 10 and 3.
[[nodiscard]] std::optional<FoundDecimal> find_decimal(std::string_view text, std::size_t from = 0);

/// The number that is the whole text, except for white space, a dollar sign in front, and a per
/// cent sign or full stop at the end.
[[nodiscard]] std::optional<Decimal> whole_decimal(std::string_view text);

/// The text without ASCII white space at both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text);

}  // namespace paceline::io
