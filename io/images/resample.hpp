// Bicubic resampling of pictures. Private to this folder.
#pragma once

#include "io/images/picture.hpp"

namespace paceline::io {

/// Resizes with antialiasing, bit for bit as torchvision 0.29 resizes pictures of bytes on CPUs
/// (BICUBIC, antialias=True). Catmull-Rom kernels, widened if the picture shrinks, have weights of
/// 16 bits. Rows are resized first, then columns; each result is rounded to bytes. Pillow's results
/// differ by at most one in 255. `width`, `height`: positive.
[[nodiscard]] Picture resample(const Picture& picture, std::int32_t width, std::int32_t height);

}  // namespace paceline::io
