// A Jinja template cut into tags, the text between them, and the words of expressions. This is done
// as by Jinja with the settings of `transformers` (trim_blocks, lstrip_blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::io::text {

/// Thrown if the text is not a template of the kind read here; caught by shape_of().
struct UnreadableTemplate {};

/// Text without the white space at its ends, as Python's str.strip(). `text` is valid UTF-8.
[[nodiscard]] std::string_view strip(std::string_view text, bool front = true, bool back = true);

/// The template as Jinja reads it: lines end with LF, and the last line has no end. Throws
/// UnreadableTemplate if the text is not UTF-8.
[[nodiscard]] std::string jinja_source(std::string_view text);

enum class TagKind : std::uint8_t { text, output, block, comment };
struct Tag {
  TagKind kind;
  std::string_view body;  ///< without delimiters and trim marks; for text: its printed part
  bool trims_before = false, trims_after = false;
};

/// Cuts the result of jinja_source(), which must outlive the tags. Throws UnreadableTemplate if a
/// tag has no end or unmatched brackets, and at raw blocks and tags marked with a plus sign.
[[nodiscard]] std::vector<Tag> read_tags(std::string_view source);

enum class WordKind : std::uint8_t { name, literal, sign };
/// One token of an expression. Numbers and keywords count as names.
struct Word {
  WordKind kind;
  std::string text;  ///< value of a literal; otherwise the text as written

  [[nodiscard]] bool is(std::string_view what) const {
    return kind != WordKind::literal && text == what;
  }
};

/// The words of a tag's body. A literal's escapes are Python's: an unknown one keeps its backslash.
/// Throws UnreadableTemplate at unsupported escapes: octal, \N{...}, a backslash before a character
/// beyond ASCII, surrogates, and truncated escapes.
[[nodiscard]] std::vector<Word> read_words(std::string_view body);

}  // namespace paceline::io::text
