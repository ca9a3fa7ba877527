// Positions of a row for rotary embedding.
#pragma once

#include <cstdint>

namespace paceline {

/// The three parts of a row's position. Each part rotates a section of every head
/// (VisionConfig::rope_sections). For rows of plain text the three are equal.
struct RotaryPosition {
  std::int32_t frame = 0;
  std::int32_t row = 0;     ///< row in a picture
  std::int32_t column = 0;  ///< column in a picture
  bool operator==(const RotaryPosition&) const = default;
};

}  // namespace paceline
