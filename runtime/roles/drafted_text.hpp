// Tokens that a drafter rank has drafted for a request: a chain after the committed text, and
// branches that leave the chain for the drafter's second choices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline::roles {

/// Drafted tokens, one after another.
struct DraftedChain {
  std::vector<TokenId> tokens;
  std::vector<float> scores;        ///< [tokens] score of each token, given the tokens before it
  std::vector<std::int32_t> by;     ///< [tokens] index of the drafter that found each token
  std::vector<TokenId> runners_up;  ///< [tokens] second choice of the same drafter; -1: none
  std::size_t sent = 0;             ///< number of tokens sent to the verifier
  bool exhausted = false;           ///< no drafter finds more until the verifier's next message

  [[nodiscard]] std::size_t size() const { return tokens.size(); }
  [[nodiscard]] int unsent() const { return static_cast<int>(tokens.size() - sent); }
  /// Forgets all tokens, but keeps the allocated memory.
  void clear() {
    tokens.clear();
    scores.clear();
    by.clear();
    runners_up.clear();
    sent = 0;
    exhausted = false;
  }
  void drop_front(std::size_t count) {
    const auto end = static_cast<std::ptrdiff_t>(count);
    tokens.erase(tokens.begin(), tokens.begin() + end);
    scores.erase(scores.begin(), scores.begin() + end);
    by.erase(by.begin(), by.begin() + end);
    runners_up.erase(runners_up.begin(), runners_up.begin() + end);
    sent -= std::min(sent, count);
  }
};

/// Tokens drafted in case the target leaves the chain by sampling `instead`.
struct DraftedBranch {
  TokenId instead = 0;  ///< the drafter's second choice, in place of the chain's token
  DraftedChain chain;   ///< drafted after `instead`
};

struct DraftedText {
  DraftedChain chain;
  std::map<std::int32_t, DraftedBranch> branches;  ///< by response index of `instead`

  [[nodiscard]] std::size_t branched() const {
    std::size_t tokens = 0;
    for (const auto& [leaves, branch] : branches) tokens += branch.chain.size();
    return tokens;
  }
};

}  // namespace paceline::roles
