// The conversion of pictures to the patches that a tower reads, from preprocessor_config.json.
#pragma once

#include <array>
#include <cstdint>

namespace paceline {

/// Parameters of the conversion. The defaults are those of transformers' Qwen2VLImageProcessor.
struct ImageProcessorConfig {
  std::int32_t patch = 14;          ///< pixels along a patch's side
  std::int32_t temporal_patch = 2;  ///< frames of a patch; a picture is repeated for each
  std::int32_t merge = 2;           ///< side, in patches, of a square that becomes one row
  std::int64_t min_pixels = 56 * 56;
  std::int64_t max_pixels = 28 * 28 * 1280;
  double rescale = 1.0 / 255;  ///< factor for a byte
  std::array<double, 3> mean{0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> deviation{0.26862954, 0.26130258, 0.27577711};

  /// Elements of a patch.
  [[nodiscard]] std::int64_t patch_elements() const {
    return std::int64_t{3} * temporal_patch * patch * patch;
  }
};

/// Patches of a picture: image_grid_thw without its 1. Both are multiples of
/// ImageProcessorConfig::merge.
struct PictureGrid {
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  bool operator==(const PictureGrid&) const = default;
  [[nodiscard]] std::int64_t patches() const { return std::int64_t{rows} * columns; }
};

}  // namespace paceline
