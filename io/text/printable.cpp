#include "io/text/printable.hpp"

#include "io/config/utf8.hpp"

namespace paceline::io {
namespace {

// Whether a character is a mark, embedding, override or isolate of Unicode's bidirectional
// algorithm, or a line or paragraph separator. Such characters could make a line look like another.
bool turns(char32_t c) {
  return c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

bool controls(char32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); }

std::string escaped(char32_t c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  const int digits = c < 0x100 ? 2 : 4;
  std::string text = digits == 2 ? "\\x" : "\\u";
  for (int d = digits - 1; d >= 0; --d) text += kDigits[(c >> (4 * d)) & 15U];
  return text;
}

}  // namespace

std::string printable(std::string_view text, bool lines) {
  const std::string valid = replace_invalid_utf8(std::string(text));
  std::string shown;
  shown.reserve(valid.size());
  for (std::size_t at = 0; at < valid.size();) {
    const CodePoint c = decode_utf8(valid, at);
    const bool stays = lines && (c.value == '\n' || c.value == '\t');
    if (!stays && (controls(c.value) || turns(c.value))) {
      shown += escaped(c.value);
    } else {
      shown += valid.substr(at, c.size);
    }
    at += c.size;
  }
  return shown;
}

std::string printable_start(std::string_view text, std::size_t characters) {
  // A character has at most four bytes, and takes at least one column.
  const std::string shown = printable(text.substr(0, 4 * characters + 4));
  std::size_t at = 0;
  std::size_t cut = 0;  // the place where "..." would begin
  for (std::size_t n = 0; at < shown.size() && n < characters; ++n) {
    if (n + 3 <= characters) cut = at;
    at += decode_utf8(shown, at).size;
  }
  return at == shown.size() ? shown : shown.substr(0, cut) + "...";
}

}  // namespace paceline::io
