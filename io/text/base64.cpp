#include "io/text/base64.hpp"

#include <array>
#include <cstdint>

namespace paceline::io::text {
namespace {

constexpr std::uint8_t kNoDigit = 64;

constexpr std::array<std::uint8_t, 256> kDigits = [] {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (std::size_t i = 0; i < digits.size(); ++i)
    values[static_cast<unsigned char>(digits[i])] = static_cast<std::uint8_t>(i);
  return values;
}();

}  // namespace

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    const std::size_t padding = !last ? 0 : text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const std::uint8_t digit =
          j < 4 - padding ? kDigits[static_cast<unsigned char>(text[i + j])] : 0;
      if (digit == kNoDigit) return std::nullopt;
      bits = bits << 6U | digit;
    }
    if ((bits & ((1U << 8 * padding) - 1)) != 0) return std::nullopt;
    for (std::size_t j = 0; j < 3 - padding; ++j)
      bytes += static_cast<char>(bits >> (16 - 8 * j) & 0xFFU);
  }
  return bytes;
}

}  // namespace paceline::io::text
