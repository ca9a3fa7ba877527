// Drafts of several drafters for one request, joined in one draft tree: drafts that begin alike
// share tokens, and one step verifies them all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline::speculation {

/// One of the drafts to join, with parents before children.
struct DraftPart {
  std::span<const TokenId> tokens;
  std::span<const std::int32_t> parents;  ///< [tokens] index; -1: the committed text
  std::span<const double> values;         ///< [tokens] P(path is accepted); a child's is no higher
};

/// The joined draft tree. Its memory is used again by the next join(). Not thread-safe.
class JoinedDraft {
 public:
  /// Joins the `most` tokens with the highest values; if values are equal, the first ones. A joined
  /// token's ancestors are always joined too.
  void join(std::span<const DraftPart> parts, std::size_t most);
  /// Drops tokens. `keep`: [tokens] not 0 where a token stays, as all its ancestors must.
  void keep(std::span<const std::uint8_t> keep);

  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const std::int32_t> parents() const { return parents_; }  ///< [tokens]
  /// [tokens] If several drafts have a token, the highest of its values.
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
  std::vector<std::vector<std::int32_t>> nodes_;  ///< [parts, tokens] tree index; -1: left out
  struct Candidate {
    double value = 0;
    std::size_t part = 0;
    std::size_t token = 0;
  };
  std::vector<Candidate> order_;
  std::vector<std::int32_t> place_;  ///< [tokens] index among the kept tokens
};

}  // namespace paceline::speculation
