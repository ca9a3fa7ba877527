// Parts of a Tokenizer, which the readers of tokenizer.json and of tiktoken.model fill in.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/text/added_tokens.hpp"
#include "io/text/bpe.hpp"
#include "io/text/pattern.hpp"
#include "io/text/stages.hpp"
#include "io/text/tokenizer.hpp"

namespace paceline::io {

namespace text {

/// Tokens of words seen before. Text repeats its words, so most lookups end here. Thread-safe.
class WordCache {
 public:
  /// Appends the tokens of a word if they are known.
  bool find(const std::string& word, std::vector<TokenId>& out) const;
  /// Remembers a word, unless it is long or the cache is full.
  void insert(const std::string& word, const TokenId* tokens, std::size_t count);

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, std::vector<TokenId>> words_;
};

}  // namespace text

struct Tokenizer::Parts {
  std::string name;  ///< the file, for messages

  text::Normalizer normalizer;
  text::AddedTokenFinder raw_finder;         ///< for added tokens searched in the text as given
  text::AddedTokenFinder normalized_finder;  ///< for added tokens searched in the normalized text
  std::vector<text::Pattern> patterns;       ///< applied in turn, each to the pieces of the last
  /// Index of the pattern before which a piece without a leading space gets one; number of
  /// patterns: after all of them.
  std::size_t space_before = never;
  static constexpr std::size_t never = ~std::size_t{0};
  std::optional<text::Metaspace> metaspace;  ///< used instead of patterns
  bool byte_fallback = false;                ///< the vocabulary is spelled in characters, not bytes
  text::Bpe bpe;
  std::vector<TokenId> prefix, suffix;  ///< from the post-processor, around the text
  std::string special_doubt;            ///< why prefix and suffix may be wrong; empty: they are not

  struct Token {
    std::string spelling;  ///< as in the file; empty: no token has this id
    std::string bytes;     ///< text of the token when decoded
    bool special = false;
    bool fallback = false;  ///< a byte of a character that has no token of its own
  };
  std::vector<Token> tokens;  ///< [vocab_size]
  std::size_t model_end = 0;  ///< one past the highest id of the model; added tokens do not count
  std::unordered_map<std::string, TokenId> ids;  ///< by spelling
  std::size_t stripped = 0;  ///< number of spaces that decoding removes at the front

  std::vector<std::string> warnings;  ///< about text
  mutable text::WordCache cache;
};

namespace text {
/// Reads tokenizer.json's text. `files`: the tokenizer's other files, which may add tokens; null:
/// there are none. Throws DataError as Tokenizer::load does.
[[nodiscard]] std::unique_ptr<const Tokenizer::Parts> read_tokenizer(
    std::string_view json, const std::string& name, const TokenizerFiles* files = nullptr);
/// Reads tiktoken.model and the special tokens of tokenizer_config.json. Throws DataError too.
[[nodiscard]] std::unique_ptr<const Tokenizer::Parts> read_tiktoken(const TokenizerFiles& files);
}  // namespace text

}  // namespace paceline::io
