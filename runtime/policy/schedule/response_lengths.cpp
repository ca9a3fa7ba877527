#include "runtime/policy/schedule/response_lengths.hpp"

#include <algorithm>

namespace paceline::policy {
namespace {

constexpr std::size_t kRanges = 256;  ///< each 0.4 % of the longest response

}  // namespace

ResponseLengths::ResponseLengths(std::uint32_t longest)
    : longest_(std::max(longest, 1U)), ended_(kRanges) {}

std::size_t ResponseLengths::range_of(std::uint32_t tokens) const {
  return std::min<std::size_t>(std::uint64_t{tokens} * kRanges / longest_, kRanges - 1);
}

void ResponseLengths::ended(std::uint32_t tokens) {
  Range& range = ended_[range_of(tokens)];
  ++range.count;
  range.tokens += tokens;
}

std::vector<double> ResponseLengths::remaining(std::span<const std::uint32_t> running) const {
  std::vector<Range> all = ended_;
  for (const std::uint32_t tokens : running) {
    Range& range = all[range_of(tokens)];
    ++range.count;
    range.tokens += tokens;
  }
  // Expected further tokens at the start of each range.
  std::vector<double> expected(kRanges, 0);  // 0: no such response ended
  Range from_here;
  double ends = 0;
  double last = longest_;  // expected where the longest response that ended ended
  for (std::size_t r = kRanges; r-- > 0;) {
    from_here.count += all[r].count;
    from_here.tokens += all[r].tokens;
    ends += ended_[r].count;
    const double start = static_cast<double>(r) * longest_ / kRanges;
    if (ends == 0) continue;
    expected[r] = (from_here.tokens - from_here.count * start) / ends;
    // Without a token past the range's start nothing is known yet of how long responses go on.
    if (ends == ended_[r].count && expected[r] > 0) last = expected[r];
  }
  std::vector<double> remaining;
  for (const std::uint32_t tokens : running) {
    const double room = longest_ > tokens ? longest_ - tokens : 0;
    const double tokens_more = expected[range_of(tokens)];
    remaining.push_back(tokens_more > 0 ? std::min(room, tokens_more) : std::min(room / 2, last));
  }
  return remaining;
}

}  // namespace paceline::policy
