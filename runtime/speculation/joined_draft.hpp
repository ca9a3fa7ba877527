// Joins the drafts of several drafters for one request into one draft tree, which one step
// verifies. Drafts that begin with the same tokens share these tokens in the tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline::speculation {

/// One of the drafts to join. A parent precedes its children, and its value is not below theirs.
struct DraftPart {
  std::span<const TokenId> tokens;
  std::span<const std::int32_t> parents;  ///< [tokens] index of the parent; -1: committed text
  std::span<const double> values;         ///< [tokens] P(path to the token is accepted)
};

/// The joined draft tree. The next join() replaces it and reuses its memory. Not thread-safe.
class JoinedDraft {
 public:
  /// Makes the tree of at most `most` tokens: those with the highest values. Ties go to the earlier
  /// token. A token's ancestors are in the tree too, because their values are not lower.
  void join(std::span<const DraftPart> parts, std::size_t most);
  /// Drops each token t with keep[t] = 0. The caller must also drop the descendants of t.
  void keep(std::span<const std::uint8_t> keep);

  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const std::int32_t> parents() const { return parents_; }  ///< [tokens]
  /// [tokens] P(path is accepted): the highest value among the drafts that share the token.
  [[nodiscard]] std::span<const double> values() const { return values_; }
  /// Whether a token of a part is in the tree.
  [[nodiscard]] bool has(std::size_t part, std::size_t token) const {
    return nodes_[part][token] >= 0;
  }

 private:
  [[nodiscard]] static std::size_t only_part(std::span<const DraftPart> parts, std::size_t most);
  [[nodiscard]] std::int32_t find(TokenId token, std::int32_t parent) const;

  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> parents_;
  std::vector<double> values_;
  std::vector<std::vector<std::int32_t>> nodes_;  ///< [parts, tokens] index in the tree; -1: none
  struct Candidate {
    double value = 0;
    std::size_t part = 0;
    std::size_t token = 0;
  };
  std::vector<Candidate> order_;
  std::vector<std::int32_t> place_;  ///< [tokens] index among the kept tokens
};

}  // namespace paceline::speculation
