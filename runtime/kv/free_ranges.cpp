#include "runtime/kv/free_ranges.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace paceline::kv {

FreeRanges::FreeRanges(std::int32_t places) : places_(places), free_(places), row_end_(places) {
  if (places > 0) ranges_.emplace(0, places);
}

FreeRanges::Range FreeRanges::take(std::int32_t most) {
  if (ranges_.empty() || most <= 0) return {};
  const auto [first, count] = *ranges_.begin();
  const std::int32_t taken = std::min(count, most);
  ranges_.erase(ranges_.begin());
  if (taken < count) ranges_.emplace(first + taken, count - taken);
  free_ -= taken;
  return {first, taken};
}

void FreeRanges::give(std::int32_t place) {
  const auto next = ranges_.upper_bound(place);
  const bool joins_next = next != ranges_.end() && next->first == place + 1;
  const auto before = next == ranges_.begin() ? ranges_.end() : std::prev(next);
  const bool has_before = before != ranges_.end();
  if (place < 0 || place >= row_end_ || (has_before && before->first + before->second > place))
    throw std::logic_error("a place is given back that is not in use");
  const std::int32_t after = joins_next ? next->second : 0;
  if (joins_next) ranges_.erase(next);
  if (has_before && before->first + before->second == place) {
    before->second += 1 + after;
  } else {
    ranges_.emplace(place, 1 + after);
  }
  ++free_;
}

void FreeRanges::drop_free() {
  places_ -= free_;
  free_ = 0;
  ranges_.clear();
}

std::int32_t FreeRanges::end() const {
  if (ranges_.empty()) return row_end_;
  const auto [first, count] = *ranges_.rbegin();
  return first + count == row_end_ ? first : row_end_;
}

}  // namespace paceline::kv
