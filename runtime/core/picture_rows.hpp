// Where the rows of pictures lie in a text, and what their positions are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "runtime/core/rotary_position.hpp"

namespace paceline {

/// The rows of a picture in a text: one for each part of a tower's result, row by row.
struct PictureRows {
  std::int32_t first = 0;    ///< position in the text of its first row
  std::int32_t rows = 0;     ///< of the picture
  std::int32_t columns = 0;  ///< likewise
  [[nodiscard]] std::int32_t count() const { return rows * columns; }
};

/// What a position of a text with these pictures, in order and apart from one another, is turned by
/// (arXiv 2409.12191, section 2.1): a text's rows count on, those of a picture by their places in
/// it, and what follows a picture comes after the longer of its sides. No part is above `position`.
[[nodiscard]] inline RotaryPosition rotary_position(std::span<const PictureRows> pictures,
                                                    std::int32_t position) {
  std::int32_t saved = 0;  // positions that the pictures before do not take
  for (const PictureRows& picture : pictures) {
    const std::int32_t in_it = position - picture.first;
    if (in_it < 0) break;
    if (in_it < picture.count()) {
      const std::int32_t at = picture.first - saved;
      return {at, at + in_it / picture.columns, at + in_it % picture.columns};
    }
    saved += picture.count() - std::max(picture.rows, picture.columns);
  }
  return {position - saved, position - saved, position - saved};
}

}  // namespace paceline
