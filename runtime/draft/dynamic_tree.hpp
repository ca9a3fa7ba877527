// A draft tree whose shape follows the drafter's confidence (EAGLE-2, arXiv 2406.16858, section 4;
// EAGLE-3 keeps it): level by level the likeliest tokens are expanded, and the likeliest of all
// drafted tokens are verified. Pure: the caller computes the tokens that may follow a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/types.hpp"
#include "runtime/draft/draft.hpp"

namespace paceline::draft {

/// A tree with the log-probability of each path. A token is never likelier than its parent. Not
/// thread-safe.
class DynamicTree {
 public:
  struct Child {
    TokenId token = 0;
    double log_probability = 0;  ///< given the parent's path, <= 0
  };

  /// Adds the tokens that may follow an expanded token, or the text (parent -1), the likeliest
  /// first.
  void add(std::int32_t parent, std::span<const Child> children);
  /// The tokens to expand next, as indices for token() and add(): the `width` likeliest tokens
  /// added since the last call, stops excluded, the likeliest first. Of equally likely tokens the
  /// one added first comes first. Valid until the next call.
  [[nodiscard]] std::span<const std::int32_t> expand(int width, std::span<const TokenId> stops);
  [[nodiscard]] TokenId token(std::int32_t index) const { return nodes_[index].token; }
  [[nodiscard]] std::int32_t parent(std::int32_t index) const { return nodes_[index].parent; }
  /// Log-probability of the path to the token.
  [[nodiscard]] double log_probability(std::int32_t index) const { return nodes_[index].score; }
  /// Depth of the token; 1 for tokens that follow the text.
  [[nodiscard]] int depth(std::int32_t index) const { return nodes_[index].depth; }

  /// Writes the likeliest tokens of all, at most `most`: parents before children, and one parent's
  /// children with the likeliest first. Returns how many.
  [[nodiscard]] int write(int most, const DraftOutput& output) const;

 private:
  struct Node {
    TokenId token = 0;
    std::int32_t parent = -1;
    int depth = 1;
    double score = 0;  ///< log-probability of the path
  };
  std::vector<Node> nodes_;
  std::size_t expanded_ = 0;  ///< number of nodes at the last expand()
  std::vector<std::int32_t> frontier_;
};

}  // namespace paceline::draft
