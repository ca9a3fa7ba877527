// Medians and quartiles of what was measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace paceline {

/// The one of the values, in order, that a share of them (0 to 1, not 1 itself) comes before: of n
/// the one at n * share, rounded down. 0.5: the median, of an even number the upper one. 0 of none.
[[nodiscard]] inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(static_cast<double>(values.size()) * share);
  const auto value = values.begin() + static_cast<std::ptrdiff_t>(at);
  std::nth_element(values.begin(), value, values.end());
  return *value;
}

}  // namespace paceline
