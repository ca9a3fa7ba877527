// The formats of picture files. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "io/images/picture.hpp"

namespace paceline::io {

/// A fault of a file's contents, without its name.
struct BadPicture : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A decoded file before it is turned and laid on white.
struct RawPicture {
  std::int32_t width = 0;
  std::int32_t height = 0;
  int channels = 3;                  ///< 3: RGB; 4: RGBA
  std::vector<std::uint8_t> pixels;  ///< [height, width, channels]
  int orientation = 1;               ///< Exif's, 1 to 8
};

/// Throws BadPicture where a header says more pixels than the limits allow, or none.
void require_size(std::int64_t width, std::int64_t height, const PictureLimits& limits);

// Each throws BadPicture as decode_picture() says.
[[nodiscard]] RawPicture decode_jpeg(std::span<const std::byte> file, const PictureLimits& limits);
[[nodiscard]] RawPicture decode_png(std::span<const std::byte> file, const PictureLimits& limits);
[[nodiscard]] RawPicture decode_webp(std::span<const std::byte> file, const PictureLimits& limits);

/// The orientation that a picture's metadata give: of Exif data (a TIFF header and what follows
/// it, perhaps behind "Exif\0\0"), else of XMP text; 1 where neither says one. Rubbish says none.
[[nodiscard]] int orientation_of(std::span<const std::byte> exif, std::string_view xmp);

}  // namespace paceline::io
