// A Jinja template's text cut into tags, what stands between them and the words of expressions, as
// Jinja cuts it under the settings of `transformers` (trim_blocks, lstrip_blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::io::text {

/// The text is not a template of the kind read here; caught by shape_of().
struct UnreadableTemplate {};

/// Text without white space at its ends, as Python's str.strip() sees it. `text` is valid UTF-8.
[[nodiscard]] std::string_view strip(std::string_view text, bool front = true, bool back = true);

/// The template as Jinja reads it: every line ends with LF alone, and the last one with nothing.
/// Throws UnreadableTemplate when the text is not UTF-8.
[[nodiscard]] std::string jinja_source(std::string_view text);

enum class TagKind : std::uint8_t { text, output, block, comment };
struct Tag {
  TagKind kind;
  std::string_view body;  ///< without delimiters and trim marks; of text, what is printed of it
  bool trims_before = false, trims_after = false;
};

/// Cuts what jinja_source() returned, which must outlive the tags. Throws UnreadableTemplate where
/// a tag has no end or brackets that do not match, and at raw blocks and tags marked with a plus
/// sign.
[[nodiscard]] std::vector<Tag> read_tags(std::string_view source);

enum class WordKind : std::uint8_t { name, literal, sign };
/// One token of an expression. Numbers count as names, and so do keywords.
struct Word {
  WordKind kind;
  std::string text;  ///< of a literal its value, else as written

  [[nodiscard]] bool is(std::string_view what) const {
    return kind != WordKind::literal && text == what;
  }
};

/// The words of a tag's body. A literal's escapes are Python's: an unknown one keeps its
/// backslash. Throws UnreadableTemplate at those that are not read here: octal ones, \N{...}, a
/// backslash before a character beyond ASCII, surrogates, and what is cut short.
[[nodiscard]] std::vector<Word> read_words(std::string_view body);

}  // namespace paceline::io::text
