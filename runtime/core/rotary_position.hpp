// Positions by which the rotary embedding turns a row.
#pragma once

#include <cstdint>

namespace paceline {

/// The three parts of a row's position, each of which turns a section of every head
/// (VisionConfig::rope_sections). Those of a text's rows are equal.
struct RotaryPosition {
  std::int32_t frame = 0;
  std::int32_t row = 0;     ///< of a picture
  std::int32_t column = 0;  ///< likewise
  bool operator==(const RotaryPosition&) const = default;
};

}  // namespace paceline
