#include "runtime/policy/draft_length.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::policy {

void order_by_value(const DraftedTokens& drafted, std::vector<int>& order) {
  order.resize(drafted.values.size());
  std::iota(order.begin(), order.end(), 0);
  // Stable: of equal values the parent, which comes before its child, stays before it.
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return drafted.values[a] > drafted.values[b]; });
}

void FixedLength::choose(const DraftQuery& query, std::span<int> lengths) {
  for (int r = 0; r < query.requests; ++r) lengths[r] = std::min(length_, query.longest_draft[r]);
}

void FixedLength::select(const DraftQuery&, const DraftedTokens&, std::span<std::uint8_t> keep) {
  std::fill(keep.begin(), keep.end(), 1);
}

}  // namespace paceline::policy
