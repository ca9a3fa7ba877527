// A draft: tokens that may come next, as a flat tree. A chain is a tree of one path.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "runtime/core/types.hpp"

namespace paceline::draft {

/// Limits of a draft for one request in one step.
struct DraftLimits {
  int max_tokens = 8;  ///< tokens in the tree
  int max_length = 8;  ///< tokens on its longest path
  int paths = 1;       ///< paths side by side; 1 gives a chain
};

/// Memory of the caller that a draft is written to: entry i of each span is token i of the tree.
/// The spans are of equal length, which bounds the draft as DraftLimits::max_tokens does.
struct DraftOutput {
  std::span<TokenId> tokens;
  /// Index of the token before, smaller than the token's own; -1: the last token of the text that
  /// the draft follows.
  std::span<std::int32_t> parents;
  /// Estimated probability, in [0, 1], that the target model says the path from this text through
  /// the token. 1 where the drafter has no estimate.
  std::span<float> scores;

  [[nodiscard]] int capacity() const {
    return static_cast<int>(std::min({tokens.size(), parents.size(), scores.size()}));
  }
  void set(int i, TokenId token, std::int32_t parent, float score) const {
    tokens[i] = token;
    parents[i] = parent;
    scores[i] = score;
  }
};

/// The draft that was written to a DraftOutput.
struct DraftResult {
  int count = 0;     ///< tokens written
  double score = 0;  ///< sum of the tokens' scores: the number expected to be accepted
  int longest = -1;  ///< length of the longest suffix that a draft could follow; -1: not sought
};

}  // namespace paceline::draft
