// The Unicode data of the reference tokenizer, adapted to the data of PCRE2 and utf8proc.
//
// The `tokenizers` library (0.23, the tested one) matches patterns with the categories of Unicode
// 16 and normalizes with the data of Unicode 9. PCRE2 10.42 has Unicode 14, utf8proc 2.8 has 15.
// Assigned characters never change their normal form and hardly ever their category, so the
// difference is a short list of code points, found by probing the library (unicode_tables.inc).
// With newer versions of PCRE2 part of the list is redundant, which is harmless; code points
// assigned in Unicode 17 and later may then differ.
#pragma once

#include <string>
#include <string_view>

namespace paceline::io::text {

/// The text in which each code point whose category differs between PCRE2 and the reference is
/// replaced by one with the reference's category and the same number of bytes. Match this text, and
/// cut the original at the same offsets. Empty: nothing needs replacing. `text` is valid UTF-8.
[[nodiscard]] std::string with_stand_ins(std::string_view text);

/// Normalization form C of the reference. `text` is valid UTF-8.
[[nodiscard]] std::string normalize_nfc(std::string_view text);

/// Whether the character has the White_Space property, like the reference's \s.
[[nodiscard]] bool is_white_space(char32_t c);
/// Whether the character is part of a word, like \w in the reference's added tokens: letters,
/// marks, decimal digits and letter numbers, connectors, joiners and enclosed letters.
[[nodiscard]] bool is_word_character(char32_t c);

}  // namespace paceline::io::text
