#include "runtime/policy/length/draft_length.hpp"

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

int draft_alike(const DraftQuery& query, int length, std::span<int> lengths) {
  int longest = 0;
  for (int r = 0; r < query.requests; ++r) {
    lengths[r] = std::min(length, query.longest_draft[r]);
    longest = std::max(longest, lengths[r]);
  }
  return longest;
}

double DraftHope::tokens(int length) const {
  double path = found;
  double sum = 0;
  for (int i = 0; i < length; ++i) sum += path *= next;
  return sum;
}

void DraftLengthPolicy::select(const DraftQuery&, const DraftedTokens&,
                               std::span<std::uint8_t> keep) {
  std::fill(keep.begin(), keep.end(), 1);
}

void MeanGoodput::record(const StepOutcome& measured) {
  const double seconds = measured.draft_seconds + measured.step_seconds;
  if (seconds <= 0) return;
  mean_ += (measured.committed / seconds - mean_) / ++visits_;
}

void FixedLength::choose(const DraftQuery& query, std::span<int> lengths) {
  draft_alike(query, length_, lengths);
}

}  // namespace paceline::policy
