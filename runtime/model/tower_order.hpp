// The order in which a tower computes a picture's rows, and the ranks that compute them.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/image_processor_config.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::model {

/// Rows that attend to one another alone: patches.
struct TowerStretch {
  int first_row = 0;
  int rows = 0;
};

/// Results of a picture, each of merge * merge neighbouring rows, so that those of a window are
/// neighbours.
struct TowerOrder {
  std::vector<std::int32_t> results;  ///< [results] index in the picture
  std::vector<TowerStretch> windows;  ///< in order, all rows
};

/// Orders a picture's rows. In a tower without windows the whole picture is one window.
[[nodiscard]] TowerOrder tower_order(const TowerConfig& config, const PictureGrid& grid);

/// Deals a picture's results to the ranks of a group: rank r computes those of the order from [r]
/// to [r + 1], maybe none. No window is cut, unless it is the whole picture, and each rank's rows
/// begin with a block of `block` rows. So ranks have windows' attention to themselves, and whole
/// blocks of keys and values to tell the others. Shares are as even as that allows.
[[nodiscard]] std::vector<int> deal_results(const TowerConfig& config, const TowerOrder& order,
                                            int block, int ranks);

}  // namespace paceline::model
