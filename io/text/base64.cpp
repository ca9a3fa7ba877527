#include "io/text/base64.hpp"

#include <array>
#include <cstdint>

namespace paceline::io::text {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t kNoDigit = 64;

constexpr std::array<std::uint8_t, 256> kDigits = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  return values;
}();

}  // namespace

std::string to_base64(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = i; j < i + 3; ++j)
      bits = bits << 8U | (j < bytes.size() ? std::to_integer<std::uint32_t>(bytes[j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      text += i + j > bytes.size() ? '=' : kAlphabet[bits >> (18 - 6 * j) & 63U];
  }
  return text;
}

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
