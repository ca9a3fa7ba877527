// UTF-8, one code point at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace paceline::io {

/// U+FFFD, which stands for invalid UTF-8.
inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

struct CodePoint {
  char32_t value = 0;
  std::size_t size = 0;  ///< bytes; 0: no valid sequence starts here
};

/// The code point that starts at `at` (< text.size()). Surrogates, overlong forms and values above
/// U+10FFFF are not valid.
[[nodiscard]] CodePoint decode_utf8(std::string_view text, std::size_t at);

/// Offset of the first invalid byte, or npos.
[[nodiscard]] std::size_t find_invalid_utf8(std::string_view text);

void append_utf8(std::string& text, char32_t value);

/// The text with one U+FFFD for each maximal prefix of a valid sequence that is cut short, and for
/// each byte that starts no sequence (the practice of the Unicode Standard, section 3.9).
[[nodiscard]] std::string replace_invalid_utf8(std::string text);

}  // namespace paceline::io
