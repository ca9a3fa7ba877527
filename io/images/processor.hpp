// The image processor of Qwen2-VL and Qwen2.5-VL: from a picture to the patches that their towers
// read, as Qwen2VLImageProcessor of transformers 5 (torchvision's) makes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/images/picture.hpp"
#include "runtime/core/image_processor_config.hpp"

namespace paceline::io {

/// The grid of a picture of that size: sides are rounded to multiples of patch * merge, and scaled
/// where there would be fewer pixels than the least, or more than the most. Throws DataError,
/// beginning with `name`, where one side is more than 200 times the other.
[[nodiscard]] PictureGrid grid_of(const ImageProcessorConfig& config, std::int32_t width,
                                  std::int32_t height, const std::string& name);

/// A picture in the tower's size. It is all that embeddings depend on.
struct ProcessedPicture {
  PictureGrid grid;
  Picture picture;  ///< [grid.rows * patch, grid.columns * patch]
};
/// Throws as grid_of().
[[nodiscard]] ProcessedPicture process(const ImageProcessorConfig& config, const Picture& picture,
                                       const std::string& name);

/// Normalised patches (pixel_values): [grid.patches(), channel 3, temporal_patch, patch, patch],
/// the merge * merge patches of one row of the tower's result after one another.
[[nodiscard]] std::vector<float> patches_of(const ImageProcessorConfig& config,
                                            const ProcessedPicture& picture);

}  // namespace paceline::io
