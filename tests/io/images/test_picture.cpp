#include "io/images/picture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "io/images/formats.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/io/images/files.hpp"

namespace paceline::io {
namespace {

std::string error_of(const std::string& file, const PictureLimits& limits = {}) {
  return test::message_of<DataError>([&] { (void)decode(file, limits); });
}

std::string fixture(const std::string& name) { return read_fixture("pictures/" + name); }

/// The file with other bytes from `at` on.
std::string with(std::string file, std::size_t at, std::string_view bytes) {
  return file.replace(at, bytes.size(), bytes);
}

// Lossless files agree to the bit; of the lossy ones, and those laid on white, libraries of other
// versions may round otherwise.
TEST(Picture, DecodesAsPillowAndTransformersDo) {
  const nlohmann::json sizes = read_json("pictures.json");
  EXPECT_GE(sizes.size(), 30U);
  for (const auto& [name, size] : sizes.items()) {
    SCOPED_TRACE(name);
    const Picture picture = decode(fixture(name));
    const std::string expected = fixture(name + ".rgb");
    EXPECT_EQ(picture.width, size[0].get<int>());
    EXPECT_EQ(picture.height, size[1].get<int>());
    ASSERT_EQ(picture.rgb.size(), expected.size());
    int furthest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      furthest =
          std::max(furthest, std::abs(picture.rgb[i] - static_cast<std::uint8_t>(expected[i])));
    }
    const bool exact = name.ends_with(".png") && name.find("alpha") == name.npos;
    EXPECT_LE(furthest, exact && name != "rgba.png" && name != "palette-transparent.png" ? 0 : 1);
  }
}

TEST(Picture, OtherFormatsAreNamed) {
  EXPECT_EQ(error_of(""), "a.file: the file is empty");
  EXPECT_EQ(error_of("GIF89a, and more"),
            "a.file: expected a JPEG, PNG or WebP picture, found a GIF");
  EXPECT_EQ(error_of("some text"),
            "a.file: expected a JPEG, PNG or WebP picture, found something else");
}

TEST(Picture, LimitsAreLookedAtBeforeDecoding) {
  const std::string file = fixture("rgb.png");
  EXPECT_EQ(error_of(file, {.file_bytes = 100}),
            "a.file: a file of " + std::to_string(file.size()) + " bytes; expected at most 100");
  for (const char* name : {"rgb.png", "420.jpg", "progressive.jpg", "lossless.webp"}) {
    EXPECT_EQ(error_of(fixture(name), {.pixels = 700}),
              "a.file: a picture of 31 x 23 pixels; expected at most 700 in all");
  }
  EXPECT_EQ(decode(file, {.pixels = 31 * 23}).width, 31);
  // A header that says 65,535 squared, in front of a few bytes.
  const std::string jpeg = fixture("420.jpg");
  const std::size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, jpeg.npos);
  const std::string huge = with(jpeg, frame + 5, std::string("\xFF\xDC\xFF\xDC"));
  EXPECT_EQ(error_of(huge),
            "a.file: a picture of 65500 x 65500 pixels; expected at most 67108864 in all");
  // Metadata that say 1.6 GB, for which libpng would make room.
  const std::string png = fixture("turned-8.png");
  const std::size_t metadata = png.find("eXIf");
  ASSERT_NE(metadata, png.npos);
  EXPECT_EQ(error_of(with(png, metadata - 4, "\x60")), "a.file: a PNG that is cut off");
  EXPECT_NE(error_of(fixture("progressive.jpg"), {.scans = 2}).find("more than 2 scans"),
            std::string::npos);
}

// Every picture that is cut off is refused, but where the rest holds no more than metadata or what
// nothing reads.
TEST(Picture, FilesThatAreCutOffAreRefused) {
  for (const char* name : {"rgb.png", "interlaced.png", "palette.png", "420.jpg", "progressive.jpg",
                           "cmyk.jpg", "lossy.webp", "lossless.webp", "alpha.webp"}) {
    SCOPED_TRACE(name);
    const std::string file = fixture(name);
    for (std::size_t size = 1; size < file.size() * 9 / 10; size += 7) {
      const std::string error = error_of(file.substr(0, size));
      ASSERT_TRUE(error.starts_with("a.file: ")) << size;
    }
  }
}

TEST(Picture, BytesAfterTheEndAreIgnored) {
  for (const char* name : {"rgb.png", "420.jpg"})
    EXPECT_EQ(decode(fixture(name) + "and more of it").rgb, decode(fixture(name)).rgb);
}

// Damage anywhere is refused or decoded to a picture of the size that the header says.
TEST(Picture, DamageIsRefusedOrHarmless) {
  const nlohmann::json sizes = read_json("pictures.json");
  for (const auto& [name, size] : sizes.items()) {
    SCOPED_TRACE(name);
    const std::string file = fixture(name);
    for (std::size_t at = 0; at < file.size(); at += 5) {
      try {
        const Picture picture = decode(with(file, at, std::string(1, static_cast<char>(~file[at]))),
                                       {.pixels = 1 << 20});
        ASSERT_EQ(picture.rgb.size(), std::size_t{3} * picture.width * picture.height);
      } catch (const DataError&) {
      }
    }
  }
}

TEST(Picture, RubbishSaysNoOrientation) {
  const auto of = [](std::string_view exif, std::string_view xmp = {}) {
    return orientation_of(std::as_bytes(std::span(exif)), xmp);
  };
  const std::string_view six("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", 22);
  EXPECT_EQ(of(six), 6);
  for (std::size_t size = 0; size < 20; ++size) EXPECT_EQ(of(six.substr(0, size)), 1);
  EXPECT_EQ(of(std::string_view("II*\0\xFF\xFF\xFF\xFF", 8)), 1);
  EXPECT_EQ(of("", "<a tiff:Orientation=\"3\"/>"), 3);
  EXPECT_EQ(of("", "<tiff:Orientation>8</tiff:Orientation>"), 8);
  EXPECT_EQ(of("", "tiff:Orientation=\"9\""), 1);
  EXPECT_EQ(of(six, "tiff:Orientation=\"3\""), 6);
}

}  // namespace
}  // namespace paceline::io
