// Pictures of a prompt, decoded to RGB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace paceline::io {

/// A picture with eight bits for each channel.
struct Picture {
  std::int32_t width = 0;
  std::int32_t height = 0;
  std::vector<std::uint8_t> rgb;  ///< [height, width, 3]
};

/// Limits of a picture, checked before it is decoded.
struct PictureLimits {
  std::size_t file_bytes = std::size_t{64} << 20;
  /// Pixels of the file, before it is resized: 67 million. Phone cameras give at most 48 million.
  /// Decoding such a JPEG takes 200 MB; a hostile one is refused at 1 GiB.
  std::int64_t pixels = std::int64_t{1} << 26;
  /// Passes of a progressive JPEG. Common files have about ten.
  int scans = 100;
};
/// Most bytes that decoding takes for each pixel, in addition to the file. A progressive JPEG with
/// four channels keeps coefficients of two bytes; the channels and the picture take seven.
inline constexpr std::int64_t kDecodingBytesPerPixel = 16;

/// Decodes a JPEG, PNG or WebP file, told apart by its first bytes. The result is as if Pillow had
/// opened the file and the image processors of transformers 5 had converted it:
///
///  * the picture is rotated by the orientation in its Exif or XMP data, as by load_image();
///  * grey and palette pictures become RGB of the same colours; CMYK pictures are read as
///    Adobe's (inverted), without a colour profile;
///  * transparent pixels are laid on white, as by convert_to_rgb();
///  * of 16 bits the upper 8 are used; grey values above 255 become 255, as in Pillow's mode I;16;
///  * of an animation the first frame is used; of a PNG, the picture and not the animation.
///
/// `name` is the file's in messages. Throws DataError on a file of another format, above the
/// limits, damaged, or cut off. Thread-safe.
[[nodiscard]] Picture decode_picture(std::span<const std::byte> file, const std::string& name,
                                     const PictureLimits& limits = {});

}  // namespace paceline::io
