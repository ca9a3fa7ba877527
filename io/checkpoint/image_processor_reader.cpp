#include "io/checkpoint/image_processor_reader.hpp"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/checkpoint/json_section.hpp"
#include "io/checkpoint/json_text.hpp"

namespace paceline::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int32_t kMostPixels = 1 << 30;  // of a resized picture; far above any model's limit
constexpr int kBicubic = 3;                    // PIL.Image.Resampling

// Reads a list of three numbers, one for each channel.
void read_channels(const JsonSection& config, const char* key, double above,
                   std::array<double, 3>& channels) {
  const json* list = config.find(key);
  if (list == nullptr) return;
  const auto valid = [above](const json& value) {
    return value.is_number() && value.get<double>() >= above && value.get<double>() <= 1e6;
  };
  if (!list->is_array() || list->size() != channels.size() || !valid((*list)[0]) ||
      !valid((*list)[1]) || !valid((*list)[2]))
    config.fail_expected(key, "a list of three numbers of at least " + json(above).dump());
  for (std::size_t i = 0; i < channels.size(); ++i) channels[i] = (*list)[i].get<double>();
}

// Reads the bounds of a resized picture: "size" in transformers 4.50 and later, or their first
// names, which count if both are there.
void read_bounds(const JsonSection& config, ImageProcessorConfig& processor) {
  const auto read = [&processor](const JsonSection& section, const char* least, const char* most) {
    if (const auto pixels = section.integer(least, 1, kMostPixels)) processor.min_pixels = *pixels;
    if (const auto pixels = section.integer(most, 1, kMostPixels)) processor.max_pixels = *pixels;
  };
  if (const json* size = config.find_object("size")) {
    const JsonSection section(*size, config.file(), config.prefix() + "size.");
    if (config.find("min_pixels") == nullptr) section.require({{"shortest_edge"}});
    if (config.find("max_pixels") == nullptr) section.require({{"longest_edge"}});
    read(section, "shortest_edge", "longest_edge");
  }
  read(config, "min_pixels", "max_pixels");
  if (processor.min_pixels <= processor.max_pixels) return;
  for (const char* least : {"min_pixels", "size"}) {
    if (config.find(least) != nullptr)
      config.fail_expected(least, "at most max_pixels, " + std::to_string(processor.max_pixels));
  }
  config.fail_expected("max_pixels",
                       "at least min_pixels, " + std::to_string(processor.min_pixels));
}

ImageProcessorConfig read_processor(const JsonSection& config) {
  config.choice("image_processor_type", {{"Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast"}});
  for (const char* step : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"}) {
    if (config.find(step) != nullptr && !config.flag(step)) config.fail_expected(step, "true");
  }
  if (config.integer("resample", 0, 5).value_or(kBicubic) != kBicubic)
    config.fail_expected("resample", "3 (bicubic)");

  ImageProcessorConfig processor;
  const auto read_size = [&config](const char* key, std::int32_t most, std::int32_t& size) {
    size = config.integer(key, 1, most).value_or(size);
  };
  read_size("patch_size", 256, processor.patch);
  read_size("temporal_patch_size", 16, processor.temporal_patch);
  read_size("merge_size", 16, processor.merge);
  read_bounds(config, processor);
  processor.rescale = config.number("rescale_factor", 0, 1).value_or(processor.rescale);
  read_channels(config, "image_mean", 0, processor.mean);
  read_channels(config, "image_std", 1e-6, processor.deviation);
  return processor;
}

}  // namespace

ImageProcessorConfig parse_image_processor(std::string_view text, const std::string& name) {
  const json root = parse_json_object(text, name);
  const JsonSection config(root, name, "");
  const json* inner = config.find_object("image_processor");
  if (inner == nullptr) return read_processor(config);
  return read_processor(JsonSection(*inner, name, "image_processor."));
}

ImageProcessorConfig load_image_processor(const std::string& directory) {
  const std::string path = fs::path(directory) / "preprocessor_config.json";
  const std::string other = fs::path(directory) / "processor_config.json";
  const std::string& file = !fs::exists(path) && fs::exists(other) ? other : path;
  return parse_image_processor(read_text_file(file), file);
}

}  // namespace paceline::io
