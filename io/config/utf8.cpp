#include "io/config/utf8.hpp"

#include <utility>

namespace paceline::io {
namespace {

/// Properties of a lead byte: the sequence's length and the range of its second byte. Later bytes
/// are always 80..BF. Length 0: no sequence starts with this byte.
struct Lead {
  unsigned char size = 0, low = 0x80, high = 0xBF;
};
constexpr Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // lower is overlong
  if (byte == 0xED) return {3, 0x80, 0x9F};  // higher is a surrogate
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};  // lower is overlong
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // higher exceeds U+10FFFF
  return {0};
}

/// Length of the valid sequence's prefix at `at` (at least 1); whether the sequence is complete.
std::pair<std::size_t, bool> valid_prefix(std::string_view text, std::size_t at) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[at]));
  if (lead.size == 0) return {1, false};
  std::size_t n = 1;
  while (n < lead.size && at + n < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at + n]);
    const bool fits = n == 1 ? byte >= lead.low && byte <= lead.high : byte >= 0x80 && byte <= 0xBF;
    if (!fits) break;
    ++n;
  }
  return {n, n == lead.size};
}

}  // namespace

CodePoint decode_utf8(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  const auto [size, whole] = valid_prefix(text, at);
  if (!whole) return {};
  char32_t value = first & (0xFFU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    value = (value << 6U) | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
  }
  return {value, size};
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto [size, whole] = valid_prefix(text, i);
    if (!whole) return i;
    i += size;
  }
  return std::string_view::npos;
}

void append_utf8(std::string& text, char32_t value) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | (value >> 6U));
    put(0x80 | (value & 0x3FU));
  } else if (value < 0x10000) {
    put(0xE0 | (value >> 12U));
    put(0x80 | ((value >> 6U) & 0x3FU));
    put(0x80 | (value & 0x3FU));
  } else {
    put(0xF0 | (value >> 18U));
    put(0x80 | ((value >> 12U) & 0x3FU));
    put(0x80 | ((value >> 6U) & 0x3FU));
    put(0x80 | (value & 0x3FU));
  }
}

std::string replace_invalid_utf8(std::string text) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad == std::string::npos) return text;
  std::string out = text.substr(0, bad);
  for (std::size_t i = bad; i < text.size();) {
    const auto [size, whole] = valid_prefix(text, i);
    if (whole) {
      out.append(text, i, size);
    } else {
      out += replacement_character;
    }
    i += size;
  }
  return out;
}

}  // namespace paceline::io
