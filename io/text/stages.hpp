// Text stages of a tokenizer before words are encoded, beside cutting by patterns.
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
  /// Puts `text` in front of any text but the empty one.
  void add_prepend(std::string text) { steps_.push_back({Kind::prepend, std::move(text), ""}); }
  /// Replaces every `what` (not empty) by `with`, from the left.
  void add_replace(std::string what, std::string with) {
    steps_.push_back({Kind::replace, std::move(what), std::move(with)});
  }

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  /// Whether some step puts text in front.
  [[nodiscard]] bool prepends() const;
  /// `text` is valid UTF-8.
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

/// `text` with every `what` (not empty) replaced, from the left.
[[nodiscard]] std::string replace_all(std::string_view text, std::string_view what,
                                      std::string_view with);

/// A pre-tokenizer of SentencePiece's kind: spaces become a character that tokens are spelled with,
/// and words may be cut before it.
struct Metaspace {
  /// Pieces of text that get a leading space when they have none.
  enum class Prepend : std::uint8_t {
    always,
    first,  ///< only the text's first piece, not one after an added token
    never,
  };
  std::string replacement;  ///< one character
  Prepend prepend = Prepend::always;
  bool cuts = true;

  /// Splits a piece, which is not empty. `begins`: the text begins with it.
  void split(std::string_view piece, bool begins,
             const std::function<void(std::string_view)>& word) const;
};

}  // namespace paceline::io::text
