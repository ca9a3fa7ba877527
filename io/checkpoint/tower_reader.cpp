#include "io/checkpoint/model_config_parts.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace paceline::io {
namespace {

using nlohmann::json;

constexpr std::int32_t kMostWidth = 1 << 20;  // elements; far above any tower

void require_value(const JsonSection& tower, const char* key, std::int32_t value) {
  if (tower.integer(key, 0, kMostWidth).value_or(value) != value)
    tower.fail_expected(key, std::to_string(value));
}

void read_qwen2_vl(const JsonSection& tower, TowerConfig& read, std::int32_t hidden) {
  read.width = *tower.integer("embed_dim", 1, kMostWidth);
  read.intermediate = read.width * tower.integer("mlp_ratio", 1, 64).value_or(4);
  tower.choice("hidden_act", {{"quick_gelu"}});
  require_value(tower, "hidden_size", hidden);
}

// Windows are given in pixels. A side has a whole number of the tower's results.
void read_windows(const JsonSection& tower, TowerConfig& read) {
  const std::int32_t side = read.patch * read.merge;
  const std::int32_t pixels = *tower.integer("window_size", 1, kMostWidth);
  read.window = pixels / side;
  if (read.window < 1) tower.fail_expected("window_size", "at least " + std::to_string(side));
  const json& list = *tower.find("fullatt_block_indexes");
  const auto valid = [&read](const json& layer) {
    return layer.is_number_integer() && layer >= 0 && layer < read.layers;
  };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), valid)) {
    tower.fail_expected("fullatt_block_indexes",
                        "a list of layers below depth, " + std::to_string(read.layers));
  }
  read.whole_layers = list.get<std::vector<std::int32_t>>();
  std::sort(read.whole_layers.begin(), read.whole_layers.end());
}

void read_qwen2_5_vl(const JsonSection& tower, TowerConfig& read, std::int32_t hidden) {
  read.width = *tower.integer("hidden_size", 1, kMostWidth);
  read.intermediate = *tower.integer("intermediate_size", 1, kMostWidth);
  tower.choice("hidden_act", {{"silu"}});
  require_value(tower, "out_hidden_size", hidden);
  read_windows(tower, read);
}

/// Defaults of transformers for absent keys: until 4.51 it saved only keys that differ from them.
json defaults_of(TowerKeys keys) {
  if (keys == TowerKeys::qwen2_vl) {
    return {{"depth", 32},
            {"embed_dim", 1280},
            {"hidden_size", 3584},
            {"mlp_ratio", 4},
            {"num_heads", 16}};
  }
  return {{"depth", 32},
          {"hidden_size", 3584},
          {"intermediate_size", 3420},
          {"num_heads", 16},
          {"window_size", 112},
          {"out_hidden_size", 3584},
          {"fullatt_block_indexes", {7, 15, 23, 31}}};
}

}  // namespace

std::optional<TowerConfig> read_tower(const JsonSection& config, TowerKeys keys,
                                      std::int32_t hidden) {
  const json* object = config.find_object("vision_config");
  if (object == nullptr || object->empty()) return std::nullopt;
  json whole = defaults_of(keys);
  whole.update(*object);
  const JsonSection tower(whole, config.file(), "vision_config.");
  TowerConfig read;
  read.layers = *tower.integer("depth", 1, 4096);
  read.heads = *tower.integer("num_heads", 1, 1 << 14);
  read.patch = tower.integer("patch_size", 1, 256).value_or(read.patch);
  read.temporal_patch = tower.integer("temporal_patch_size", 1, 16).value_or(read.temporal_patch);
  read.merge = tower.integer("spatial_merge_size", 1, 16).value_or(read.merge);
  for (const char* channels : {"in_channels", "in_chans"}) require_value(tower, channels, 3);
  if (keys == TowerKeys::qwen2_vl) read_qwen2_vl(tower, read, hidden);
  if (keys == TowerKeys::qwen2_5_vl) read_qwen2_5_vl(tower, read, hidden);
  // Rows and columns each turn a quarter of a head's elements, twice.
  if (read.width % read.heads != 0 || read.head_dim() % 8 != 0 || read.head_dim() > 256) {
    tower.fail_expected("num_heads", "heads of a multiple of 8 elements up to 256, of " +
                                         std::to_string(read.width) + " in all");
  }
  if (const json* rope = tower.find_object("rope_parameters")) {
    const JsonSection section(*rope, config.file(), "vision_config.rope_parameters.");
    read.rope_theta = section.number("rope_theta", 1, 1e15).value_or(read.rope_theta);
  }
  return read;
}

}  // namespace paceline::io
