// How pictures become the patches that a tower reads: preprocessor_config.json.
#pragma once

#include <array>
#include <cstdint>

namespace paceline {

/// Defaults are those of transformers' Qwen2VLImageProcessor.
struct ImageProcessorConfig {
  std::int32_t patch = 14;          ///< pixels of a patch's side
  std::int32_t temporal_patch = 2;  ///< frames of a patch; a picture is repeated as often
  std::int32_t merge = 2;           ///< patches of a side that the tower merges into a row
  std::int64_t min_pixels = 56 * 56;
  std::int64_t max_pixels = 28 * 28 * 1280;
  double rescale = 1.0 / 255;  ///< of a byte
  std::array<double, 3> mean{0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> deviation{0.26862954, 0.26130258, 0.27577711};

  /// Elements of a patch.
  [[nodiscard]] std::int64_t patch_elements() const {
    return std::int64_t{3} * temporal_patch * patch * patch;
  }
};

/// Patches of a picture: image_grid_thw without its 1.
struct PictureGrid {
  std::int32_t rows = 0;     ///< of patches, a multiple of ImageProcessorConfig::merge
  std::int32_t columns = 0;  ///< likewise
  bool operator==(const PictureGrid&) const = default;
  [[nodiscard]] std::int64_t patches() const { return std::int64_t{rows} * columns; }
};

}  // namespace paceline
