// Accepted length of a draft tree, for every number of calls after which drafting may stop: the
// data that RADAR learns from (section 2.2, "Dataset", equations 8 to 10).
//
// The acceptance rule is paceline's: the target samples with the request's noise, and a path is
// accepted as far as it agrees with the sampled tokens. Siblings are different tokens of which at
// most one is sampled, so P_acc(child | parent) is the target's probability of the child, and all
// children are rejected with the remaining probability. Equation 10 has 1 - sum (1 - P_acc), which
// is negative for two unlikely children; for the published rule, which tries siblings one after
// another, it must be the product of (1 - P_acc). Summed over the nodes of a depth, P_stop is then
// the probability of the paths to that depth less the probability of the paths one deeper.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/interfaces.hpp"

namespace paceline::policy {

/// The tree of all tokens drafted in StopPoint::kCalls calls of the draft model, and for each
/// number of calls the tree that is verified then: the likeliest tokens down to this depth. Not
/// thread-safe.
class StoppedTrees {
 public:
  /// `parents`: [tokens] index of the parent, smaller than the token's own; -1: the text. `scores`:
  /// [tokens] score of the path to the token, at most the parent's. `most`: most tokens of a
  /// verified tree. Throws std::invalid_argument where the spans differ in size, or a path has more
  /// tokens than kCalls.
  StoppedTrees(std::span<const std::int32_t> parents, std::span<const float> scores, int most);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(parents_.size()); }
  [[nodiscard]] int depth(std::int32_t token) const { return depths_[token]; }
  /// Whether the token is in at least one of the verified trees.
  [[nodiscard]] bool verified(std::int32_t token) const { return first_[token] > 0; }
  /// Whether a child of the token is in one of the verified trees. The token is then in the same
  /// tree.
  [[nodiscard]] bool inner(std::int32_t token) const { return inner_[token] != 0; }

  /// Probability that exactly 0 ... kCalls tokens of each tree are accepted. `conditional`:
  /// [tokens] the target's probability of the token after its parent; not read for tokens that are
  /// not verified.
  [[nodiscard]] StopPoint::Lengths lengths(std::span<const double> conditional) const;
  /// Number of accepted tokens of each tree where the target says the tokens of `path`, which
  /// begins after the text.
  [[nodiscard]] StopPoint::Accepted accepted(std::span<const std::int32_t> path) const;

 private:
  [[nodiscard]] bool stands(std::int32_t token, int calls) const;

  std::vector<std::int32_t> parents_;
  std::vector<int> depths_;
  // A token is in the trees of one range of calls: once further calls have crowded it out, it does
  // not come back.
  std::vector<int> first_;  ///< [tokens] calls of the first tree with the token; 0: none
  std::vector<int> last_;   ///< [tokens] calls of the last tree with the token
  std::vector<std::uint8_t> inner_;
};

}  // namespace paceline::policy
