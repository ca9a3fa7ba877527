// Tokens that a drafter rank has drafted for a request: a chain after the committed text, and
// branches, each of which has the drafter's second choice in place of one of the chain's tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline::roles {

struct DraftedToken {
  TokenId token = 0;
  float score = 0;         ///< score of the token, given the tokens before it
  std::int32_t by = 0;     ///< index of the drafter that found the token
  TokenId runner_up = -1;  ///< the drafter's second choice instead of `token`; -1: none
};

struct DraftedChain {
  std::vector<DraftedToken> tokens;
  std::size_t sent = 0;    ///< the first `sent` tokens have been sent to the verifier
  bool exhausted = false;  ///< no drafter found a next token; a verifier's message clears this

  [[nodiscard]] std::size_t size() const { return tokens.size(); }
  [[nodiscard]] int unsent() const { return static_cast<int>(tokens.size() - sent); }
  void clear() {
    tokens.clear();
    sent = 0;
    exhausted = false;
  }
  void drop_front(std::size_t count) {
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
    sent -= std::min(sent, count);
  }
};

/// Tokens drafted in case the target leaves the chain by sampling `instead`.
struct DraftedBranch {
  std::int32_t leaves = 0;  ///< response index of `instead`
  TokenId instead = 0;      ///< the drafter's second choice, in place of the chain's token
  DraftedChain chain;       ///< tokens drafted after `instead`
};

struct DraftedText {
  DraftedChain chain;
  std::vector<DraftedBranch> branches;  ///< ascending by `leaves`; no two have the same `leaves`

  /// The first branch that leaves the chain at `leaves` or later; branches.end(): there is none.
  [[nodiscard]] auto first_branch(std::int32_t leaves) {
    return std::ranges::lower_bound(branches, leaves, {}, &DraftedBranch::leaves);
  }
  /// The branch that leaves the chain at response index `leaves`; nullptr: there is none.
  [[nodiscard]] DraftedBranch* branch(std::int32_t leaves) {
    const auto at = first_branch(leaves);
    return at != branches.end() && at->leaves == leaves ? &*at : nullptr;
  }
  /// Returns the branch that leaves the chain at response index `leaves`. If there is none, adds
  /// one that begins with `instead`. The reference is valid until `branches` changes.
  DraftedBranch& branch_at(std::int32_t leaves, TokenId instead) {
    if (DraftedBranch* known = branch(leaves)) return *known;
    return *branches.insert(first_branch(leaves), {leaves, instead, {}});
  }
  /// Number of tokens drafted in all branches.
  [[nodiscard]] std::size_t branched() const {
    std::size_t tokens = 0;
    for (const DraftedBranch& branch : branches) tokens += branch.chain.size();
    return tokens;
  }
};

}  // namespace paceline::roles
