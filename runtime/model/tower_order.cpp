#include "runtime/model/tower_order.hpp"

#include <algorithm>
#include <cstdlib>

namespace paceline::model {

TowerOrder tower_order(const TowerConfig& config, const PictureGrid& grid) {
  const std::int32_t rows = grid.rows / config.merge;
  const std::int32_t columns = grid.columns / config.merge;
  const std::int32_t unit = config.merge * config.merge;
  const std::int32_t side = config.window > 0 ? config.window : std::max(rows, columns);
  TowerOrder order;
  for (std::int32_t top = 0; top < rows; top += side) {
    for (std::int32_t left = 0; left < columns; left += side) {
      const auto before = static_cast<std::int32_t>(order.results.size());
      for (std::int32_t y = top; y < std::min(top + side, rows); ++y) {
        for (std::int32_t x = left; x < std::min(left + side, columns); ++x)
          order.results.push_back(y * columns + x);
      }
      const auto after = static_cast<std::int32_t>(order.results.size());
      order.windows.push_back({before * unit, (after - before) * unit});
    }
  }
  return order;
}

std::vector<int> deal_results(const TowerConfig& config, const TowerOrder& order, int block,
                              int ranks) {
  const int unit = config.merge * config.merge;
  const auto all = static_cast<int>(order.results.size());
  std::vector<int> places;  // where a share may begin, ascending
  const auto add = [&](int result) {
    if (result * unit % block == 0) places.push_back(result);
  };
  if (config.window > 0) {
    for (const TowerStretch& window : order.windows) add(window.first_row / unit);
  } else {
    for (int result = 0; result < all; ++result) add(result);
  }
  places.push_back(all);
  std::vector<int> first{0};
  for (int rank = 1; rank < ranks; ++rank) {
    const int wanted = all * rank / ranks;
    const int nearest = *std::ranges::min_element(
        places, {}, [wanted](int place) { return std::abs(place - wanted); });
    first.push_back(std::max(first.back(), nearest));
  }
  first.push_back(all);
  return first;
}

}  // namespace paceline::model
