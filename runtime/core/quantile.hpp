// Medians and quartiles of measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace paceline {

/// The value at index n * share, rounded down, of the n sorted values; 0 without values. share: in
/// [0, 1); 0.5 gives the median, for an even number of values the upper one.
[[nodiscard]] inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(static_cast<double>(values.size()) * share);
  const auto value = values.begin() + static_cast<std::ptrdiff_t>(at);
  std::nth_element(values.begin(), value, values.end());
  return *value;
}

}  // namespace paceline
