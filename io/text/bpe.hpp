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

/// Merges by pair, (left id, right id) -> (rank, merged id): an open-addressed table, since
/// encoding mostly looks up pairs.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = 0;
    TokenId token = 0;
  };
  void reserve(std::size_t merges);
  /// Inserts a pair; an existing one takes the new rank.
  void insert(TokenId left, TokenId right, Merge merge);
  [[nodiscard]] const Merge* find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    std::uint64_t key = empty;
    Merge merge;
  };
  static constexpr std::uint64_t empty = ~std::uint64_t{0};  ///< no pair: ids are not negative
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const;
  std::vector<Slot> slots_;  ///< a power of two of them, at most half full
};

/// The model part of a tokenizer. Immutable and thread-safe once filled.
struct Bpe {
  std::unordered_map<std::string, TokenId> vocab;  ///< a word that is one token -> its id
  std::array<TokenId, 256> byte_token{};
  /// Characters with tokens, for vocabularies spelled in characters (SentencePiece's), where bytes
  /// of other characters are tokens of their own. Empty: words are bytes.
  std::unordered_map<char32_t, TokenId> characters;
  MergeTable merges;
  bool ignore_merges = false;  ///< a word that is a token becomes it, whatever the merges

  /// Appends the tokens of a word (not empty; valid UTF-8 where there are `characters`) in O(n log
  /// n).
  void encode_word(std::string_view word, std::vector<TokenId>& out) const;
};

}  // namespace paceline::io::text
