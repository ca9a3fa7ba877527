// The Unicode data of the reference tokenizer, bridged to that of PCRE2 and utf8proc.
//
// The `tokenizers` library (0.23, the tested one) matches patterns with the categories of Unicode
// 16 and normalizes with the data of Unicode 9; PCRE2 10.42 has 14, utf8proc 2.8 has 15. Assigned
// characters never change their normal form and hardly ever their category, so the difference is a
// short list of code points, found by probing the library (unicode_tables.inc). With newer versions
// of PCRE2 the list is partly redundant, which is harmless; code points assigned in Unicode 17 and
// later may then differ.
#pragma once

#include <string>
#include <string_view>

namespace paceline::io::text {

/// The text with every code point whose category PCRE2 and the reference disagree on replaced by
/// one of the reference's category and the same number of bytes: match this, and cut the original
/// at the same offsets. Empty when nothing needs replacing. `text` is valid UTF-8.
[[nodiscard]] std::string with_stand_ins(std::string_view text);

/// Normalization form C of the reference. `text` is valid UTF-8.
[[nodiscard]] std::string normalize_nfc(std::string_view text);

/// The White_Space property, as the reference's \s.
[[nodiscard]] bool is_white_space(char32_t c);
/// A character of a word, as \w for the reference's added tokens: letters, marks, decimal digits
/// and letter numbers, connectors, joiners and enclosed letters.
[[nodiscard]] bool is_word_character(char32_t c);

}  // namespace paceline::io::text
