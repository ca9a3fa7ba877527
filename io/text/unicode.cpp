#include "io/text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <stdexcept>

#include "io/config/utf8.hpp"

namespace paceline::io::text {
namespace {

struct NewCategory {
  char32_t first, last;
  char category[3];
  char32_t stand_in;
};
struct Inert {
  char32_t first, last;
};
#include "io/text/unicode_tables.inc"

/// The range of a sorted table that contains c, or null.
template <typename Range, std::size_t n>
const Range* find_range(const Range (&table)[n], char32_t c) {
  const Range* r = std::ranges::upper_bound(table, c, {}, &Range::first);
  if (r == std::begin(table)) return nullptr;
  --r;
  return c <= r->last ? r : nullptr;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c & 0x80) == 0; });
}

void append_nfc(std::string& out, std::string_view text) {
  if (text.empty()) return;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size < 0) throw std::runtime_error(std::string("utf8proc: ") + utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
}

}  // namespace

namespace {

/// Whether a letter of the Han script is new since Unicode 14, which PCRE2 10.42 has. The table's
/// stand-in for letters is of another script.
bool is_new_han(char32_t c) {
  return (c >= 0x31350 && c <= 0x323AF) || (c >= 0x2EBF0 && c <= 0x2EE5D);
}

}  // namespace

std::string with_stand_ins(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    if (c.size >= 3) {  // nothing below U+0800 differs
      if (const NewCategory* r = find_range(new_categories, c.value)) {
        if (out.empty()) out = text;
        std::string replacement;
        append_utf8(replacement, is_new_han(c.value) ? 0x20000 : r->stand_in);
        out.replace(i, c.size, replacement);
      }
    }
    i += std::max<std::size_t>(c.size, 1);
  }
  return out;
}

std::string normalize_nfc(std::string_view text) {
  std::string out;
  if (is_ascii(text)) return out = text;
  // Code points that the reference leaves unchanged split the text: each piece between them is
  // normalized by itself.
  std::size_t piece = 0;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    const std::size_t size = std::max<std::size_t>(c.size, 1);
    if (c.size >= 2 && find_range(inert_ranges, c.value) != nullptr) {
      append_nfc(out, text.substr(piece, i - piece));
      out.append(text, i, size);
      piece = i + size;
    }
    i += size;
  }
  append_nfc(out, text.substr(piece));
  return out;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  if (c < 0x80) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  }
  if (c == 0x200C || c == 0x200D) return true;
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  if (const NewCategory* r = find_range(new_categories, c)) {
    const std::string_view category = r->category;
    return category[0] == 'L' || category[0] == 'M' || category == "Nd" || category == "Nl";
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace paceline::io::text
