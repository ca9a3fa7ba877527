// Stages that change a tokenizer's text before words are encoded, other than cutting by patterns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::io::text {

/// Rewrites text, step by step. Immutable and thread-safe once filled.
class Normalizer {
 public:
  void add_nfc() { steps_.push_back({Kind::nfc, "", ""}); }
  /// Puts `text` in front of any non-empty text.
  void add_prepend(std::string text) { steps_.push_back({Kind::prepend, std::move(text), ""}); }
  /// Replaces every `what` (not empty) by `with`, from left to right.
  void add_replace(std::string what, std::string with) {
    steps_.push_back({Kind::replace, std::move(what), std::move(with)});
  }

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  /// Whether some step puts text in front.
  [[nodiscard]] bool prepends() const;
  /// Rewrites a text, which must be valid UTF-8.
  [[nodiscard]] std::string run(std::string_view text) const;

 private:
  enum class Kind : std::uint8_t { nfc, prepend, replace };
  struct Step {
    Kind kind;
    std::string text;
    std::string with;
  };
  std::vector<Step> steps_;
};

/// Returns `text` with every `what` (not empty) replaced, from left to right.
[[nodiscard]] std::string replace_all(std::string_view text, std::string_view what,
                                      std::string_view with);

/// A pre-tokenizer of SentencePiece's kind: spaces become a character that tokens are spelled with,
/// and words may be cut before this character.
struct Metaspace {
  /// The pieces of text that get a leading space if they have none.
  enum class Prepend : std::uint8_t {
    always,
    first,  ///< only the text's first piece, no piece after an added token
    never,
  };
  std::string replacement;  ///< one character
  Prepend prepend = Prepend::always;
  bool cuts = true;

  /// Splits a piece, which must not be empty. `begins`: the piece is at the start of the text.
  void split(std::string_view piece, bool begins,
             const std::function<void(std::string_view)>& word) const;
};

}  // namespace paceline::io::text
