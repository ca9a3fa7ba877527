// Accepted length of a draft tree by the number of calls after which drafting stops: the data that
// RADAR learns from (section 2.2, "Dataset", equations 8 to 10).
//
// The acceptance rule is ours: the target samples with its own noise, and a path is accepted as far
// as it names the sampled tokens. Siblings are different tokens of which at most one is sampled, so
// P_acc(child | parent) is the target's probability of the child, and all children are rejected
// with the remaining probability. Equation 10 has 1 - sum (1 - P_acc), which is negative for two
// unlikely children; for the published rule, which tries siblings one after another, it must be the
// product of (1 - P_acc). Summed over the nodes of a depth, P_stop is then the probability of the
// paths to that depth less the probability of the paths one deeper.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/interfaces.hpp"

namespace paceline::policy {

/// A tree of all tokens drafted in StopPoint::kCalls calls of the draft model, and the part of it
/// that stands after fewer calls: the likeliest tokens down to that depth. Not thread-safe.
class StoppedTrees {
 public:
  /// `parents`: [tokens] smaller than the token's own index; -1: the text. `scores`: [tokens] of
  /// paths, none larger than the parent's. `most`: tokens of a tree that is verified. Throws
  /// std::invalid_argument where the spans differ in size, or a path has more tokens than kCalls.
  StoppedTrees(std::span<const std::int32_t> parents, std::span<const float> scores, int most);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(parents_.size()); }
  [[nodiscard]] int depth(std::int32_t token) const { return depths_[token]; }
  /// Whether the token stands in at least one of the trees.
  [[nodiscard]] bool verified(std::int32_t token) const { return first_[token] > 0; }
  /// Whether a child of the token stands in one of the trees. The token then stands there too.
  [[nodiscard]] bool inner(std::int32_t token) const { return inner_[token] != 0; }

  /// Probability that 0 ... kCalls tokens of each tree are accepted. `conditional`: [tokens] the
  /// target's probability of the token after its parent; not read for tokens that are not verified.
  [[nodiscard]] StopPoint::Lengths lengths(std::span<const double> conditional) const;
  /// Accepted tokens of each tree where the target says this path of tokens, from the text on.
  [[nodiscard]] StopPoint::Accepted accepted(std::span<const std::int32_t> path) const;

 private:
  [[nodiscard]] bool stands(std::int32_t token, int calls) const;

  std::vector<std::int32_t> parents_;
  std::vector<int> depths_;
  // The trees that a token stands in are a range of calls: more calls crowd it out for good.
  std::vector<int> first_;  ///< [tokens] calls of the first tree with it; 0: none
  std::vector<int> last_;   ///< [tokens] calls of the last tree with it
  std::vector<std::uint8_t> inner_;
};

}  // namespace paceline::policy
