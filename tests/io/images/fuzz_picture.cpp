// Whatever bytes a picture has, it is decoded within the limits or refused.
#include <cstdlib>

#include "io/images/picture.hpp"
#include "runtime/core/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const paceline::io::PictureLimits limits{.pixels = 1 << 16};
  try {
    const auto picture =
        paceline::io::decode_picture(std::as_bytes(std::span(data, size)), "picture", limits);
    const std::size_t bytes = std::size_t{3} * picture.width * picture.height;
    if (picture.rgb.size() != bytes || bytes > 3 * (std::size_t{1} << 16)) std::abort();
  } catch (const paceline::DataError&) {
  }
  return 0;
}
