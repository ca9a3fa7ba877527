#include "runtime/policy/place/deal.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace paceline::policy {

std::vector<int> deal(std::span<const std::int64_t> work, std::span<const int> speeds) {
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
  std::vector<std::int64_t> load(speeds.size(), 0);
  std::vector<int> worker(work.size());
  for (const std::size_t piece : order) {
    std::size_t first = 0;
    for (std::size_t w = 1; w < speeds.size(); ++w) {
      // (load + work) / speed, compared without rounding.
      if ((load[w] + work[piece]) * speeds[first] < (load[first] + work[piece]) * speeds[w])
        first = w;
    }
    load[first] += work[piece];
    worker[piece] = static_cast<int>(first);
  }
  return worker;
}

}  // namespace paceline::policy
