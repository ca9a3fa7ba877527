// Decoder of PNG files, with libpng.
#include <png.h>

#include <algorithm>
#include <cstring>

#include "io/images/formats.hpp"

namespace paceline::io {
namespace {

constexpr png_alloc_size_t kMostChunk = 1 << 20;  // bytes of an unpacked metadata chunk
constexpr png_uint_32 kMostChunks = 64;           // number of metadata chunks kept
constexpr std::size_t kSignature = 8;             // bytes

[[noreturn]] void fail(png_structp, png_const_charp message) {
  throw BadPicture(std::string("a damaged PNG: ") + message);
}

void skip_message(png_structp, png_const_charp) {}

/// Throws if a chunk is longer than the rest of the file, because the library may allocate memory
/// for it before it reads.
void require_chunks(std::span<const std::byte> file) {
  for (std::size_t at = kSignature; at < file.size();) {
    constexpr std::size_t around = 12;  // bytes of a chunk without its data
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4 && at + i < file.size(); ++i)
      length = length << 8 | std::to_integer<std::size_t>(file[at + i]);
    if (file.size() - at < around + length) throw BadPicture("a PNG that is cut off");
    if (std::memcmp(file.data() + at + 4, "IEND", 4) == 0) return;  // the rest is not read
    at += around + length;
  }
}

/// The library's state. Errors are exceptions that pass through the library's stack frames; these
/// own nothing, since the state owns everything.
class Reader {
 public:
  Reader(std::span<const std::byte> file, const PictureLimits& limits)
      : rest_(file), limits_(limits) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, fail, skip_message);
    if (png_ == nullptr) throw std::bad_alloc();
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) throw std::bad_alloc();
    png_set_read_fn(png_, this, read);
    // require_size() checks the pixels after the header is read.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png_, kMostChunk);
    png_set_chunk_cache_max(png_, kMostChunks);
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  RawPicture decode() {
    png_read_info(png_, info_);
    RawPicture raw;
    const png_uint_32 width = png_get_image_width(png_, info_);
    const png_uint_32 height = png_get_image_height(png_, info_);
    require_size(width, height, limits_);
    raw.width = static_cast<std::int32_t>(width);
    raw.height = static_cast<std::int32_t>(height);

    const int bits = png_get_bit_depth(png_, info_);
    const int colours = png_get_color_type(png_, info_);
    cut_off_ = bits == 16 && colours == PNG_COLOR_TYPE_GRAY;
    if (!cut_off_) {
      png_set_expand(png_);  // palettes, fewer bits than 8, and transparent colours
      png_set_strip_16(png_);
      png_set_gray_to_rgb(png_);
    }
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const int channels = png_get_channels(png_, info_);
    raw.channels = cut_off_ ? 3 : channels;
    const std::size_t row = png_get_rowbytes(png_, info_);
    std::vector<std::uint8_t> pixels(row * height);
    for (int pass = 0; pass < passes; ++pass) {
      for (png_uint_32 y = 0; y < height; ++y) png_read_row(png_, pixels.data() + y * row, nullptr);
    }
    png_read_end(png_, info_);
    raw.pixels = cut_off_ ? grey_of_16(pixels) : std::move(pixels);
    raw.orientation = orientation();
    return raw;
  }

 private:
  static void read(png_structp png, png_bytep out, png_size_t bytes) {
    auto& self = *static_cast<Reader*>(png_get_io_ptr(png));
    if (bytes > self.rest_.size()) throw BadPicture("a PNG that is cut off");
    std::memcpy(out, self.rest_.data(), bytes);
    self.rest_ = self.rest_.subspan(bytes);
  }

  static std::vector<std::uint8_t> grey_of_16(const std::vector<std::uint8_t>& in) {
    std::vector<std::uint8_t> out(in.size() / 2 * 3);
    for (std::size_t i = 0; i < in.size() / 2; ++i)  // the upper byte comes first
      std::fill_n(out.begin() + i * 3, 3, in[2 * i] == 0 ? in[2 * i + 1] : 255);
    return out;
  }

  [[nodiscard]] int orientation() const {
    png_bytep exif = nullptr;
    png_uint_32 bytes = 0;
    if (png_get_eXIf_1(png_, info_, &bytes, &exif) == 0) bytes = 0;
    std::string_view xmp;
    png_textp texts = nullptr;
    int count = 0;
    png_get_text(png_, info_, &texts, &count);
    for (int i = 0; i < count; ++i) {
      if (std::string_view(texts[i].key) == "XML:com.adobe.xmp" && texts[i].text != nullptr)
        xmp = texts[i].text;
    }
    return orientation_of(std::as_bytes(std::span(exif, bytes)), xmp);
  }

  std::span<const std::byte> rest_;
  const PictureLimits& limits_;
  bool cut_off_ = false;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

RawPicture decode_png(std::span<const std::byte> file, const PictureLimits& limits) {
  require_chunks(file);
  return Reader(file, limits).decode();
}

}  // namespace paceline::io
