// Regular expressions of pre-tokenizers, run by PCRE2 as written in the file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace paceline::io::text {

/// GPT-2's pattern, by which a ByteLevel pre-tokenizer with use_regex splits.
extern const char* const gpt2_pattern;

/// Why a pattern does not have the reference's (Oniguruma's) meaning here; empty: it has. Both
/// engines agree on literals in ASCII, classes, \s \d \p{category}, groups, lookahead, alternation
/// and quantifiers; anything else is refused, since its meaning may differ here (\h) or follow
/// other Unicode data (\w).
[[nodiscard]] std::string unsupported_syntax(std::string_view pattern);

/// A compiled pattern. Const methods are thread-safe.
class Pattern {
 public:
  /// Whose pattern it is: a file's, written for the reference, or one written here, for PCRE2.
  enum class Syntax : std::uint8_t { of_file, own };
  /// Throws DataError "`where`: ..." when a file's syntax is unsupported, does not compile, or can
  /// match nothing (which would not split text).
  Pattern(std::string_view pattern, const std::string& where, Syntax syntax = Syntax::of_file);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  /// Cuts `text` (valid UTF-8) into matches and the pieces between them, in order; pieces are never
  /// empty and together are the text. Throws DataError when matching exceeds its step limit.
  void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
  std::string where_;
};

}  // namespace paceline::io::text
