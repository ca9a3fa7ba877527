// Byte-pair encoding of one word: merges of neighbouring tokens, lowest rank first.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline::io::text {

/// Merges by pair, (left id, right id) -> (rank, merged id). An open-addressed table, because
/// encoding consists mostly of lookups of pairs.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = 0;
    TokenId token = 0;
  };
  void reserve(std::size_t merges);
  /// Inserts a pair; a pair that is already there gets the new merge.
  void insert(TokenId left, TokenId right, Merge merge);
  [[nodiscard]] const Merge* find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    std::uint64_t key = empty;
    Merge merge;
  };
  static constexpr std::uint64_t empty = ~std::uint64_t{0};  ///< no pair: ids are not negative
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const;
  std::vector<Slot> slots_;  ///< their number is a power of two; at most half are used
};

/// The model part of a tokenizer. Immutable and thread-safe once filled.
struct Bpe {
  std::unordered_map<std::string, TokenId> vocab;  ///< words that are one token -> id
  std::array<TokenId, 256> byte_token{};
  /// Characters with tokens, in vocabularies spelled in characters (SentencePiece's); bytes of all
  /// other characters are tokens of their own. Empty: words are bytes.
  std::unordered_map<char32_t, TokenId> characters;
  MergeTable merges;
  bool ignore_merges = false;  ///< a word that is a token becomes it, even if merges differ

  /// Appends the tokens of a word in O(n log n). The word is not empty; if there are `characters`,
  /// it must be valid UTF-8.
  void encode_word(std::string_view word, std::vector<TokenId>& out) const;
};

}  // namespace paceline::io::text
