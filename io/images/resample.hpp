// Bicubic resampling of pictures. Private to this folder.
#pragma once

#include "io/images/picture.hpp"

namespace paceline::io {

/// Resizes with antialiasing, to the bit as torchvision 0.29 resizes pictures of bytes on CPUs
/// (BICUBIC, antialias=True): Catmull-Rom kernels, widened where the picture shrinks, whose weights
/// are rounded to 16 bits; first along rows and then along columns, rounding to bytes after each.
/// Pillow's differ by at most one in 255. `width`, `height`: positive.
[[nodiscard]] Picture resample(const Picture& picture, std::int32_t width, std::int32_t height);

}  // namespace paceline::io
