// Decoder of JPEG files, with libjpeg-turbo.
#include <cstdio>

#include <jpeglib.h>  // which needs what is before it

#include "io/images/formats.hpp"

namespace paceline::io {
namespace {

constexpr int kMetadataMarker = JPEG_APP0 + 1;  // for Exif and XMP

[[noreturn]] void fail(j_common_ptr info) {
  char message[JMSG_LENGTH_MAX];
  info->err->format_message(info, message);
  throw BadPicture(std::string("a damaged JPEG: ") + message);
}

void skip_message(j_common_ptr) {}

// Called when the library needs bytes beyond the end of the file.
boolean fill(j_decompress_ptr) { throw BadPicture("a JPEG that is cut off"); }

void skip(j_decompress_ptr info, long bytes) {
  if (bytes <= 0) return;
  if (static_cast<std::size_t>(bytes) > info->src->bytes_in_buffer) fill(info);
  info->src->next_input_byte += bytes;
  info->src->bytes_in_buffer -= bytes;
}

void do_nothing(j_decompress_ptr) {}

/// The library's state. Errors are exceptions that pass through the library's stack frames; these
/// own nothing, since the state owns everything.
class Decompressor {
 public:
  Decompressor(std::span<const std::byte> file, const PictureLimits& limits) : limits_(limits) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = fail;
    errors_.output_message = skip_message;
    jpeg_create_decompress(&info_);
    source_.init_source = do_nothing;
    source_.fill_input_buffer = fill;
    source_.skip_input_data = skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = do_nothing;
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(file.data());
    source_.bytes_in_buffer = file.size();
    info_.src = &source_;
    progress_.info.progress_monitor = watch_scans;
    progress_.most = limits.scans;
    info_.progress = &progress_.info;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info_); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  RawPicture decode() {
    jpeg_save_markers(&info_, kMetadataMarker, 0xFFFF);
    jpeg_read_header(&info_, TRUE);
    require_size(info_.image_width, info_.image_height, limits_);
    info_.mem->max_memory_to_use = static_cast<long>(limits_.pixels * kDecodingBytesPerPixel);
    const bool cmyk = info_.num_components == 4;
    info_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;

    RawPicture raw;
    raw.width = static_cast<std::int32_t>(info_.image_width);
    raw.height = static_cast<std::int32_t>(info_.image_height);
    raw.orientation = orientation();
    jpeg_start_decompress(&info_);
    const std::size_t row = static_cast<std::size_t>(raw.width) * 3;
    raw.pixels.resize(row * raw.height);
    std::vector<std::uint8_t> four(cmyk ? static_cast<std::size_t>(raw.width) * 4 : 0);
    while (info_.output_scanline < info_.output_height) {
      std::uint8_t* out = raw.pixels.data() + info_.output_scanline * row;
      JSAMPROW into = cmyk ? four.data() : out;
      jpeg_read_scanlines(&info_, &into, 1);
      if (cmyk) to_rgb(four, out);
    }
    return raw;
  }

 private:
  struct Progress {
    jpeg_progress_mgr info{};
    int most = 0;
  };

  static void watch_scans(j_common_ptr info) {
    const auto* progress = reinterpret_cast<const Progress*>(info->progress);
    const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
    if (decompress->input_scan_number > progress->most)
      throw BadPicture("a JPEG of more than " + std::to_string(progress->most) + " scans");
  }

  /// Adobe's channels are inverted: 255 is no ink.
  static void to_rgb(const std::vector<std::uint8_t>& cmyk, std::uint8_t* out) {
    for (std::size_t i = 0; i < cmyk.size(); i += 4, out += 3) {
      for (int c = 0; c < 3; ++c)
        out[c] = static_cast<std::uint8_t>((cmyk[i + c] * cmyk[i + 3] + 127) / 255);
    }
  }

  [[nodiscard]] int orientation() const {
    constexpr std::string_view exif_mark("Exif\0\0", 6);
    constexpr std::string_view xmp_mark("http://ns.adobe.com/xap/1.0/\0", 29);
    std::span<const std::byte> exif;
    std::string_view xmp;
    for (const auto* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (exif.empty() && data.starts_with(exif_mark)) exif = std::as_bytes(std::span(data));
      if (data.starts_with(xmp_mark)) xmp = data.substr(xmp_mark.size());
    }
    return orientation_of(exif, xmp);
  }

  const PictureLimits& limits_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  Progress progress_;
};

}  // namespace

RawPicture decode_jpeg(std::span<const std::byte> file, const PictureLimits& limits) {
  return Decompressor(file, limits).decode();
}

}  // namespace paceline::io
