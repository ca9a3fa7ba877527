#include "io/images/processor.hpp"

#include <algorithm>
#include <cmath>

#include "io/images/resample.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

PictureGrid grid_of(const ImageProcessorConfig& config, std::int32_t width, std::int32_t height,
                    const std::string& name) {
  constexpr double most_ratio = 200;
  if (static_cast<double>(std::max(width, height)) / std::min(width, height) > most_ratio) {
    throw DataError(name + ": a picture of " + std::to_string(width) + " x " +
                    std::to_string(height) +
                    " pixels; expected at most 200 times as many on one side as on the other");
  }
  const double factor = config.patch * config.merge;
  const double pixels = static_cast<double>(width) * height;
  // Halves are rounded to even numbers, as in Python.
  double rows = std::nearbyint(height / factor);
  double columns = std::nearbyint(width / factor);
  const double rounded = rows * factor * (columns * factor);
  if (rounded > static_cast<double>(config.max_pixels)) {
    const double shrink = std::sqrt(pixels / static_cast<double>(config.max_pixels));
    rows = std::max(1.0, std::floor(height / shrink / factor));
    columns = std::max(1.0, std::floor(width / shrink / factor));
  } else if (rounded < static_cast<double>(config.min_pixels)) {
    const double stretch = std::sqrt(static_cast<double>(config.min_pixels) / pixels);
    rows = std::ceil(height * stretch / factor);
    columns = std::ceil(width * stretch / factor);
  }
  return {static_cast<std::int32_t>(rows) * config.merge,
          static_cast<std::int32_t>(columns) * config.merge};
}

ProcessedPicture process(const ImageProcessorConfig& config, const Picture& picture,
                         const std::string& name) {
  const PictureGrid grid = grid_of(config, picture.width, picture.height, name);
  return {grid, resample(picture, grid.columns * config.patch, grid.rows * config.patch)};
}

std::vector<float> patches_of(const ImageProcessorConfig& config, const ProcessedPicture& picture) {
  const std::int32_t patch = config.patch;
  const std::int32_t merge = config.merge;
  const Picture& in = picture.picture;
  std::vector<float> all(picture.grid.patches() * config.patch_elements());
  // The value of each byte in each channel, computed in fp32 as in torchvision.
  std::array<std::array<float, 256>, 3> values;
  const auto scale = static_cast<float>(1 / config.rescale);
  for (int c = 0; c < 3; ++c) {
    const float mean = static_cast<float>(config.mean[c]) * scale;
    const float deviation = static_cast<float>(config.deviation[c]) * scale;
    for (int v = 0; v < 256; ++v) values[c][v] = (static_cast<float>(v) - mean) / deviation;
  }
  float* out = all.data();
  const auto write_patch = [&](std::int32_t row, std::int32_t column) {
    for (int c = 0; c < 3; ++c) {
      for (std::int32_t t = 0; t < config.temporal_patch; ++t) {
        for (std::int32_t y = 0; y < patch; ++y) {
          const std::size_t pixel = (static_cast<std::size_t>(row) * patch + y) * in.width +
                                    std::size_t{1} * column * patch;
          for (std::int32_t x = 0; x < patch; ++x) *out++ = values[c][in.rgb[(pixel + x) * 3 + c]];
        }
      }
    }
  };
  for (std::int32_t row = 0; row < picture.grid.rows; row += merge) {
    for (std::int32_t column = 0; column < picture.grid.columns; column += merge) {
      for (std::int32_t i = 0; i < merge * merge; ++i)
        write_patch(row + i / merge, column + i % merge);
    }
  }
  return all;
}

}  // namespace paceline::io
