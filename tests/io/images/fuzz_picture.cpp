// Whatever bytes a picture has, it is decoded and made into patches within the limits, or refused.
// For an hour, from the fixtures as a corpus:
//
//   fuzz_picture -max_total_time=3600 -malloc_limit_mb=64 -timeout=20 corpus
//   tests/io/images/pictures
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>

#include "io/images/picture.hpp"
#include "io/images/processor.hpp"
#include "runtime/core/error.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

using paceline::DataError;

constexpr paceline::io::PictureLimits kLimits{.pixels = 1 << 16};
constexpr paceline::ImageProcessorConfig kConfig{.max_pixels = 1 << 14};

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | bytes[3];
}

/// Gives the chunks of a PNG the checksums of what they have come to: without them most changes
/// would be refused before anything is decoded.
void mend_checksums(std::uint8_t* data, std::size_t size) {
  constexpr std::size_t signature = 8;
  constexpr std::size_t around = 12;  // bytes of a chunk beside its data
  if (size < signature || std::memcmp(data, "\x89PNG\r\n\x1A\n", signature) != 0) return;
  for (std::size_t at = signature; size - at >= around;) {
    const std::size_t length = big_endian(data + at);
    if (length > size - at - around) return;
    const auto sum =
        static_cast<std::uint32_t>(crc32(0, data + at + 4, static_cast<unsigned>(length + 4)));
    for (int i = 0; i < 4; ++i)
      data[at + 8 + length + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
    at += around + length;
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (std::minstd_rand(seed)() % 8 != 0) mend_checksums(data, size);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto picture =
        paceline::io::decode_picture(std::as_bytes(std::span(data, size)), "picture", kLimits);
    const std::int64_t pixels = std::int64_t{picture.width} * picture.height;
    if (std::ssize(picture.rgb) != 3 * pixels || pixels > kLimits.pixels) std::abort();
    const auto processed = paceline::io::process(kConfig, picture, "picture");
    const auto patches = paceline::io::patches_of(kConfig, processed);
    if (std::ssize(patches) != processed.grid.patches() * kConfig.patch_elements()) std::abort();
    const auto finite = [](float value) { return value > -10 && value < 10; };
    if (!std::all_of(patches.begin(), patches.end(), finite)) std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
