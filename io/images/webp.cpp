// Decoder of WebP files, with libwebp.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "io/images/formats.hpp"

namespace paceline::io {
namespace {

template <auto Delete>
struct Deleter {
  template <class T>
  void operator()(T* pointer) const {
    Delete(pointer);
  }
};
using Demuxer = std::unique_ptr<WebPDemuxer, Deleter<WebPDemuxDelete>>;
using Frames = std::unique_ptr<WebPAnimDecoder, Deleter<WebPAnimDecoderDelete>>;

/// The bytes of a metadata chunk, within the file's; empty: there is none.
std::span<const std::byte> chunk_of(const WebPDemuxer* demuxer, const char* name) {
  WebPChunkIterator chunk = {};
  std::span<const std::byte> bytes;
  if (WebPDemuxGetChunk(demuxer, name, 1, &chunk) != 0)
    bytes = std::as_bytes(std::span(chunk.chunk.bytes, chunk.chunk.size));
  WebPDemuxReleaseChunkIterator(&chunk);
  return bytes;
}

}  // namespace

RawPicture decode_webp(std::span<const std::byte> file, const PictureLimits& limits) {
  const WebPData data = {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
  WebPBitstreamFeatures features = {};
  const VP8StatusCode status = WebPGetFeatures(data.bytes, data.size, &features);
  if (status == VP8_STATUS_NOT_ENOUGH_DATA) throw BadPicture("a WebP that is cut off");
  if (status != VP8_STATUS_OK) throw BadPicture("a damaged WebP");
  require_size(features.width, features.height, limits);

  const Demuxer demuxer(WebPDemux(&data));
  if (demuxer == nullptr) throw BadPicture("a WebP that is damaged or cut off");
  const std::int64_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  const std::int64_t height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  require_size(width, height, limits);

  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0) throw BadPicture("libwebp of another version");
  options.color_mode = MODE_RGBA;
  options.use_threads = 0;
  const Frames frames(WebPAnimDecoderNew(&data, &options));
  std::uint8_t* pixels = nullptr;  // owned by the decoder
  int time = 0;
  if (frames == nullptr || WebPAnimDecoderGetNext(frames.get(), &pixels, &time) == 0)
    throw BadPicture("a WebP that is damaged or cut off");
  RawPicture raw;
  raw.width = static_cast<std::int32_t>(width);
  raw.height = static_cast<std::int32_t>(height);
  raw.channels = 4;
  raw.pixels.assign(pixels, pixels + width * height * 4);
  const std::span<const std::byte> xmp = chunk_of(demuxer.get(), "XMP ");
  raw.orientation = orientation_of(chunk_of(demuxer.get(), "EXIF"),
                                   {reinterpret_cast<const char*>(xmp.data()), xmp.size()});
  return raw;
}

}  // namespace paceline::io
