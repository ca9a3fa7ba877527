// Pictures of a prompt, decoded to RGB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace paceline::io {

/// Eight bits a channel.
struct Picture {
  std::int32_t width = 0;
  std::int32_t height = 0;
  std::vector<std::uint8_t> rgb;  ///< [height, width, 3]
};

/// Bounds on a picture, which are looked at before it is decoded.
struct PictureLimits {
  std::size_t file_bytes = std::size_t{64} << 20;
  /// Of the file, before it is resized: 67 million, which those of telephones' cameras do not pass
  /// (48 million). Decoding such a JPEG takes 200 MB; a hostile one is refused at 1 GiB.
  std::int64_t pixels = std::int64_t{1} << 26;
  /// Passes over a progressive JPEG, of which files that are met with have about ten.
  int scans = 100;
};
/// Decoding takes at most so many bytes for each pixel, beside the file's: a progressive JPEG of
/// four channels keeps coefficients of two bytes, and the channels and the picture come to seven.
inline constexpr std::int64_t kDecodingBytesPerPixel = 16;

/// Decodes a JPEG, PNG or WebP file, told apart by its first bytes, as Pillow opens it and the
/// image processors of transformers 5 take it:
///
///  * it is turned by the orientation of its Exif or XMP data, as load_image() does;
///  * grey and palette pictures are RGB of the same colours, CMYK ones are those of Adobe
///  (inverted)
///    without a colour profile;
///  * what is transparent is laid on white, as convert_to_rgb() does;
///  * of 16 bits the upper 8 count, but grey is cut off at 255, as Pillow cuts its mode I;16;
///  * of an animation the first frame counts; of a PNG, the picture beside the animation.
///
/// `name` stands for the file in messages. Throws DataError on a file of another format, one past
/// the limits, and one that is damaged or cut off. Thread-safe.
[[nodiscard]] Picture decode_picture(std::span<const std::byte> file, const std::string& name,
                                     const PictureLimits& limits = {});

}  // namespace paceline::io
