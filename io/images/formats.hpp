// Decoders of the formats of picture files. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "io/images/picture.hpp"

namespace paceline::io {

/// An error in a file's contents; the message does not name the file.
struct BadPicture : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A decoded file before it is rotated and laid on white.
struct RawPicture {
  std::int32_t width = 0;
  std::int32_t height = 0;
  int channels = 3;                  ///< 3: RGB; 4: RGBA
  std::vector<std::uint8_t> pixels;  ///< [height, width, channels]
  int orientation = 1;               ///< from Exif or XMP, 1 to 8
};

/// Throws BadPicture if a header states more pixels than the limits allow, or none.
void require_size(std::int64_t width, std::int64_t height, const PictureLimits& limits);

// Each throws BadPicture for the same files as decode_picture() throws DataError.
[[nodiscard]] RawPicture decode_jpeg(std::span<const std::byte> file, const PictureLimits& limits);
[[nodiscard]] RawPicture decode_png(std::span<const std::byte> file, const PictureLimits& limits);
[[nodiscard]] RawPicture decode_webp(std::span<const std::byte> file, const PictureLimits& limits);

/// The orientation in a picture's metadata: in Exif data (a TIFF header and the rest, perhaps after
/// "Exif\0\0"), else in XMP text. 1 if neither has one, or metadata are malformed.
[[nodiscard]] int orientation_of(std::span<const std::byte> exif, std::string_view xmp);

}  // namespace paceline::io
