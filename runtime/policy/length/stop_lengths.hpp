// How much is accepted of a draft tree where drafting stops after each number of calls: what RADAR
// learns from (section 2.2, "Dataset", equations 8 to 10).
//
// The acceptance rule is ours: the target samples with its own noise, and a path is accepted as far
// as it names those tokens. Siblings are different tokens of which at most one is sampled, so that
// P_acc(child | parent) is the target's probability of the child, and all children are rejected
// with what is left to others. Equation 10 has 1 - sum (1 - P_acc), which is negative for two
// unlikely children; for the published rule, where siblings are tried one after another, it must be
// the product of (1 - P_acc). Summed over the nodes of a depth, P_stop is then what the paths to
// that depth have together less what those one deeper have.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/interfaces.hpp"

namespace paceline::policy {

/// A tree of all that was drafted in StopPoint::kCalls calls of the draft model, and which part of
/// it stands where there are fewer: the likeliest tokens down to that depth. Not thread-safe.
class StoppedTrees {
 public:
  /// `parents`: [tokens] smaller than the token's own index; -1: the text. `scores`: [tokens] of
  /// the path, none larger than the parent's. `most`: tokens of a tree that is verified. Throws
  /// std::invalid_argument where the spans differ in size, or a path is longer than there are
  /// calls.
  StoppedTrees(std::span<const std::int32_t> parents, std::span<const float> scores, int most);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(parents_.size()); }
  [[nodiscard]] int depth(std::int32_t token) const { return depths_[token]; }
  /// Whether the token stands in one of the trees at least.
  [[nodiscard]] bool verified(std::int32_t token) const { return first_[token] > 0; }
  /// Whether some token that follows it does. Those before it do by then.
  [[nodiscard]] bool inner(std::int32_t token) const { return inner_[token] != 0; }

  /// How likely 0 ... kCalls tokens are accepted of each tree. `conditional`: [tokens] that the
  /// target says the token after the one before it; of tokens that are not verified it is not read.
  [[nodiscard]] StopPoint::Lengths lengths(std::span<const double> conditional) const;
  /// How many are, where the target says this path: tokens from the text on.
  [[nodiscard]] StopPoint::Accepted accepted(std::span<const std::int32_t> path) const;

 private:
  [[nodiscard]] bool stands(std::int32_t token, int calls) const;

  std::vector<std::int32_t> parents_;
  std::vector<int> depths_;
  // A token stands in the trees of a range of calls: more of them crowd it out, and never let it in
  // again.
  std::vector<int> first_;  ///< [tokens] calls of the first tree that has it; 0: none
  std::vector<int> last_;   ///< [tokens] calls of the last one
  std::vector<std::uint8_t> inner_;
};

}  // namespace paceline::policy
