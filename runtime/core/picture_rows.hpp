// The rows of pictures in a text, and the rotary positions of a text with pictures.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace paceline {

/// The three parts of a row's position. Each part rotates a section of every head
/// (VisionConfig::rope_sections). For rows of plain text the three are equal.
struct RotaryPosition {
  std::int32_t frame = 0;
  std::int32_t row = 0;     ///< row in a picture
  std::int32_t column = 0;  ///< column in a picture
  bool operator==(const RotaryPosition&) const = default;
};

/// The rows of a picture in a text: one for each part of a tower's result, row by row.
struct PictureRows {
  std::int32_t first = 0;    ///< position in the text of the picture's first row
  std::int32_t rows = 0;     ///< rows of the tower's result
  std::int32_t columns = 0;  ///< columns of the tower's result
  [[nodiscard]] std::int32_t count() const { return rows * columns; }
};

/// The rotary position of a position in a text with these pictures (arXiv 2409.12191, section 2.1).
/// Positions of text count on. Positions in a picture count by row and column. Text after a picture
/// goes on after the longer of the picture's sides. No part of the result is above `position`.
/// `pictures`: in order, not overlapping.
[[nodiscard]] inline RotaryPosition rotary_position(std::span<const PictureRows> pictures,
                                                    std::int32_t position) {
  std::int32_t saved = 0;  // positions by which the pictures before are shorter
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
