// Regular expressions of pre-tokenizers. PCRE2 runs them as the file writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace paceline::io::text {

/// GPT-2's pattern, with which a ByteLevel pre-tokenizer with use_regex splits.
extern const char* const gpt2_pattern;

/// Why a pattern may not mean here what it means to the reference (Oniguruma); empty: it means the
/// same. Both engines agree on literals in ASCII, classes, \s \d \p{category}, groups, lookahead,
/// alternation and quantifiers. Anything else is refused: its meaning may differ (\h) or depend on
/// other Unicode data (\w).
[[nodiscard]] std::string unsupported_syntax(std::string_view pattern);

/// A compiled pattern. Const methods are thread-safe.
class Pattern {
 public:
  /// Origin of a pattern: a file's, written for the reference, or one written here, for PCRE2.
  enum class Syntax : std::uint8_t { of_file, own };
  /// Throws DataError "`where`: ..." if a file's pattern is unsupported, does not compile, or can
  /// match the empty text (which would not split text).
  Pattern(std::string_view pattern, const std::string& where, Syntax syntax = Syntax::of_file);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  /// Cuts `text` (valid UTF-8) into matches and the pieces between them, in order. Pieces are never
  /// empty, and together they are the text. Throws DataError if matching exceeds its step limit.
  void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
  std::string where_;
};

}  // namespace paceline::io::text
