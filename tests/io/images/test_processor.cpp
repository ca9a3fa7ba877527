#include "io/images/processor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "io/checkpoint/image_processor_reader.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/io/images/files.hpp"

namespace paceline::io {
namespace {

using nlohmann::json;

ImageProcessorConfig processor_of(const json& options) {
  return parse_image_processor(options.dump(), "preprocessor_config.json");
}

std::string error_of(const json& options) {
  return test::message_of<DataError>([&] { (void)processor_of(options); });
}

TEST(ImageProcessor, GridsAreThoseOfThePublishedOne) {
  int checked = 0;
  for (const json& each : read_json("grids.json")) {
    const ImageProcessorConfig config = processor_of(each["processor"]);
    for (const json& size : each["grids"]) {
      const PictureGrid expected{size[2], size[3]};
      EXPECT_EQ(grid_of(config, size[0], size[1], ""), expected)
          << each["processor"] << ' ' << size;
      ++checked;
    }
  }
  EXPECT_GE(checked, 500);
}

// Pixels are those of torchvision to the bit, and normalised ones to a rounding of fp32.
TEST(ImageProcessor, PatchesAreThoseOfThePublishedOne) {
  for (const json& each : read_json("patches.json")) {
    SCOPED_TRACE(each["name"]);
    const ImageProcessorConfig config = processor_of(each["processor"]);
    const Picture picture = decode(read_fixture("pictures/" + each["picture"].get<std::string>()));
    const ProcessedPicture processed = process(config, picture, "");
    EXPECT_EQ(processed.grid, (PictureGrid{each["grid"][0], each["grid"][1]}));
    const std::vector<float> patches = patches_of(config, processed);
    const std::string bytes = read_fixture(each["name"].get<std::string>() + ".f32");
    ASSERT_EQ(patches.size() * sizeof(float), bytes.size());
    std::vector<float> expected(patches.size());
    std::memcpy(expected.data(), bytes.data(), bytes.size());
    float furthest = 0;
    for (std::size_t i = 0; i < patches.size(); ++i)
      furthest = std::max(furthest, std::abs(patches[i] - expected[i]));
    EXPECT_LE(furthest, 1e-6F);  // a step of a byte is above 0.014
  }
}

TEST(ImageProcessor, SidesThatAreFarApartAreRefused) {
  EXPECT_EQ(grid_of({}, 400, 2, ""), (PictureGrid{2, 58}));
  EXPECT_EQ(test::message_of<DataError>([] { (void)grid_of({}, 401, 2, "a.png"); }),
            "a.png: a picture of 401 x 2 pixels; expected at most 200 times as many on one side as "
            "on the other");
}

TEST(ImageProcessor, ReadsFilesOfAllReleases) {
  EXPECT_EQ(processor_of(json::object()).max_pixels, 28 * 28 * 1280);
  const json size = {{"shortest_edge", 3136}, {"longest_edge", 12845056}};
  EXPECT_EQ(processor_of({{"size", size}}).max_pixels, 12845056);
  const ImageProcessorConfig both =
      processor_of({{"size", size}, {"min_pixels", 784}, {"max_pixels", 50176}});
  EXPECT_EQ(both.min_pixels, 784);
  EXPECT_EQ(both.max_pixels, 50176);
  const json first = {{"size", {{"min_pixels", 1}, {"max_pixels", 2}}},
                      {"min_pixels", 3136},
                      {"max_pixels", 12845056},
                      {"image_processor_type", "Qwen2VLImageProcessor"}};
  EXPECT_EQ(processor_of(first).max_pixels, 12845056);
  EXPECT_EQ(processor_of({{"image_processor", {{"patch_size", 16}}}}).patch, 16);
}

TEST(ImageProcessor, RefusesOtherProcessors) {
  EXPECT_EQ(error_of({{"image_processor_type", "SiglipImageProcessor"}}),
            "preprocessor_config.json: image_processor_type: expected Qwen2VLImageProcessor or "
            "Qwen2VLImageProcessorFast, found 'SiglipImageProcessor'");
  EXPECT_EQ(error_of({{"do_resize", false}}),
            "preprocessor_config.json: do_resize: expected true, found false");
  EXPECT_EQ(error_of({{"resample", 2}}),
            "preprocessor_config.json: resample: expected 3 (bicubic), found 2");
  EXPECT_EQ(error_of({{"image_std", {0.5, 0, 0.5}}}),
            "preprocessor_config.json: image_std: expected a list of three numbers of at least "
            "1e-06, found [0.5,0,0.5]");
  EXPECT_EQ(error_of({{"max_pixels", 50}}),
            "preprocessor_config.json: max_pixels: expected at least min_pixels, 3136, found 50");
  EXPECT_EQ(error_of({{"min_pixels", 100}, {"max_pixels", 50}}),
            "preprocessor_config.json: min_pixels: expected at most max_pixels, 50, found 100");
  EXPECT_EQ(error_of({{"size", {{"height", 5}}}}),
            "preprocessor_config.json: missing keys: size.shortest_edge");
}

}  // namespace
}  // namespace paceline::io
