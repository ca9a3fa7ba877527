#include "io/images/picture.hpp"

#include <array>

#include "io/images/formats.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

bool begins(std::span<const std::byte> file, std::string_view mark, std::size_t at = 0) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  return text.size() >= at && text.substr(at).starts_with(mark);
}

RawPicture decode(std::span<const std::byte> file, const PictureLimits& limits) {
  if (file.empty()) throw BadPicture("the file is empty");
  if (file.size() > limits.file_bytes) {
    throw BadPicture("a file of " + std::to_string(file.size()) + " bytes; expected at most " +
                     std::to_string(limits.file_bytes));
  }
  if (begins(file, "\xFF\xD8\xFF")) return decode_jpeg(file, limits);
  if (begins(file, "\x89PNG\r\n\x1A\n")) return decode_png(file, limits);
  if (begins(file, "RIFF") && begins(file, "WEBP", 8)) return decode_webp(file, limits);
  constexpr std::array<std::array<std::string_view, 2>, 6> others{{{"GIF8", "a GIF"},
                                                                   {"BM", "a BMP"},
                                                                   {"II*", "a TIFF"},
                                                                   {"MM", "a TIFF"},
                                                                   {"<svg", "an SVG"},
                                                                   {"%PDF", "a PDF"}}};
  std::string found = "something else";
  for (const auto& [mark, kind] : others)
    if (begins(file, mark)) found = kind;
  if (begins(file, "ftyp", 4)) found = "an AVIF or HEIC picture, or a film";
  throw BadPicture("expected a JPEG, PNG or WebP picture, found " + found);
}

/// The pixel of `raw` that goes to (x, y) of the rotated picture.
std::size_t source_of(const RawPicture& raw, std::int32_t x, std::int32_t y) {
  const std::int32_t right = raw.width - 1;
  const std::int32_t bottom = raw.height - 1;
  std::int32_t column = x;
  std::int32_t row = y;
  switch (raw.orientation) {
    case 2:
      column = right - x;
      break;
    case 3:
      column = right - x, row = bottom - y;
      break;
    case 4:
      row = bottom - y;
      break;
    case 5:
      column = y, row = x;
      break;
    case 6:
      column = y, row = bottom - x;
      break;
    case 7:
      column = right - y, row = bottom - x;
      break;
    case 8:
      column = right - y, row = x;
      break;
    default:
      break;
  }
  return static_cast<std::size_t>(row) * raw.width + column;
}

std::uint8_t on_white(std::uint8_t channel, std::uint8_t alpha) {
  return static_cast<std::uint8_t>((channel * alpha + 255 * (255 - alpha) + 127) / 255);
}

Picture turned_on_white(RawPicture&& raw) {
  if (raw.orientation == 1 && raw.channels == 3)
    return {raw.width, raw.height, std::move(raw.pixels)};
  Picture picture{raw.width, raw.height, {}};
  if (raw.orientation >= 5) std::swap(picture.width, picture.height);
  picture.rgb.resize(std::size_t{3} * picture.width * picture.height);
  std::uint8_t* out = picture.rgb.data();
  for (std::int32_t y = 0; y < picture.height; ++y) {
    for (std::int32_t x = 0; x < picture.width; ++x, out += 3) {
      const std::uint8_t* in = raw.pixels.data() + source_of(raw, x, y) * raw.channels;
      for (int c = 0; c < 3; ++c) out[c] = raw.channels == 4 ? on_white(in[c], in[3]) : in[c];
    }
  }
  return picture;
}

}  // namespace

void require_size(std::int64_t width, std::int64_t height, const PictureLimits& limits) {
  const std::string size = std::to_string(width) + " x " + std::to_string(height);
  if (width < 1 || height < 1) throw BadPicture("a picture of " + size + " pixels");
  if (width > limits.pixels / height) {
    throw BadPicture("a picture of " + size + " pixels; expected at most " +
                     std::to_string(limits.pixels) + " in all");
  }
}

Picture decode_picture(std::span<const std::byte> file, const std::string& name,
                       const PictureLimits& limits) {
  try {
    return turned_on_white(decode(file, limits));
  } catch (const BadPicture& bad) {
    throw DataError(name + ": " + bad.what());
  }
}

}  // namespace paceline::io
