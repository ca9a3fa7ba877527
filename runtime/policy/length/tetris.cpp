#include "runtime/policy/length/tetris.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::policy {

void Tetris::select(const DraftQuery& query, const DraftedTokens& drafted,
                    std::span<std::uint8_t> keep) {
  order_by_value(drafted, order_);
  const auto budget = static_cast<std::size_t>(std::ceil(kBudget * query.requests * max_length_));
  std::fill(keep.begin(), keep.end(), 0);
  for (std::size_t i = 0; i < std::min(budget, order_.size()); ++i) keep[order_[i]] = 1;
}

}  // namespace paceline::policy
