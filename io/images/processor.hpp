// The image processor of Qwen2-VL and Qwen2.5-VL: from a picture to the patches that the tower
// reads, as made by Qwen2VLImageProcessor of transformers 5 (with torchvision).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/images/picture.hpp"
#include "runtime/core/image_processor_config.hpp"

namespace paceline::io {

/// The grid of a picture of this size. Sides are rounded to multiples of patch * merge. They are
/// scaled if there would be less than min_pixels or more than max_pixels. Throws DataError,
/// beginning with `name`, if one side is more than 200 times the other.
[[nodiscard]] PictureGrid grid_of(const ImageProcessorConfig& config, std::int32_t width,
                                  std::int32_t height, const std::string& name);

/// A picture in the tower's size. Embeddings depend on nothing else.
struct ProcessedPicture {
  PictureGrid grid;
  Picture picture;  ///< [grid.rows * patch, grid.columns * patch]
};
/// Throws the errors of grid_of().
[[nodiscard]] ProcessedPicture process(const ImageProcessorConfig& config, const Picture& picture,
                                       const std::string& name);

/// Normalised patches (pixel_values): [grid.patches(), channel 3, temporal_patch, patch, patch].
/// The merge * merge patches of one row of the tower's result follow one another.
[[nodiscard]] std::vector<float> patches_of(const ImageProcessorConfig& config,
                                            const ProcessedPicture& picture);

}  // namespace paceline::io
