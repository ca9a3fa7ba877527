// A fixed draft length of which the likeliest tokens are verified: TETRIS, a baseline of Nightjar's
// (section 6.1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/policy/length/draft_length.hpp"

namespace paceline::policy {

/// Every step drafts `max_length` tokens for each request, and verifies as many of them as the
/// budget has rows: those of the highest probability that their path is accepted, over the whole
/// batch (order_by_value). Nightjar speaks of "a predefined computational budget" without its size,
/// and of the highest predictive entropy, where TETRIS itself has the probability of acceptance.
class Tetris final : public DraftLengthPolicy {
 public:
  /// Of the tokens asked for, as many are verified at most: half, so that there is as much to
  /// choose from as is chosen.
  static constexpr double kBudget = 0.5;

  explicit Tetris(int max_length) : max_length_(max_length) {}

  bool considers(const DraftQuery& query) override { return query.requests > 0; }
  void choose(const DraftQuery& query, std::span<int> lengths) override {
    draft_alike(query, max_length_, lengths);
  }
  void select(const DraftQuery& query, const DraftedTokens& drafted,
              std::span<std::uint8_t> keep) override;

 private:
  int max_length_;
  std::vector<int> order_;
};

}  // namespace paceline::policy
