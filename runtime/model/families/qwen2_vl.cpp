// Qwen2-VL and Qwen2.5-VL: the decoder of Qwen2 and 2.5, and a tower for pictures.
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {
namespace {

BiasedNorm layer_norm(const std::string& name, std::int64_t width) {
  return {{name, width}, StoredVector{name + ".bias", width}};
}

BiasedNorm rms_norm(const std::string& name, std::int64_t width) { return {{name, width}, {}}; }

Projection biased(const std::string& name, std::int64_t outputs, std::int64_t inputs) {
  return {name, outputs, inputs, Cut::whole, Cut::whole, true};
}

using MakeNorm = BiasedNorm (*)(const std::string& name, std::int64_t width);

/// The parts that the towers of both releases have in common; the caller adds the layers' MLPs.
TowerDescription tower_of(const ModelConfig& config, MakeNorm norm) {
  const TowerConfig& tower = *config.vision->tower;
  const std::int64_t width = tower.width;
  const std::int64_t merged = width * tower.merge * tower.merge;
  TowerDescription description;
  description.patch = {"visual.patch_embed.proj", width, tower.patch_elements()};
  description.patch_shape = {width, 3, tower.temporal_patch, tower.patch, tower.patch};
  for (std::int32_t n = 0; n < tower.layers; ++n) {
    const std::string prefix = "visual.blocks." + std::to_string(n) + ".";
    description.layers.push_back({.attention_norm = norm(prefix + "norm1", width),
                                  .qkv = biased(prefix + "attn.qkv", 3 * width, width),
                                  .output = biased(prefix + "attn.proj", width, width),
                                  .mlp_norm = norm(prefix + "norm2", width),
                                  .mlp = {}});
  }
  description.merger_norm = norm("visual.merger.ln_q", width);
  description.merger = {biased("visual.merger.mlp.0", merged, merged),
                        biased("visual.merger.mlp.2", config.hidden, merged)};
  return description;
}

TowerDescription qwen2_vl_tower(const ModelConfig& config) {
  const TowerConfig& tower = *config.vision->tower;
  TowerDescription description = tower_of(config, layer_norm);
  for (std::int32_t n = 0; n < tower.layers; ++n) {
    const std::string prefix = "visual.blocks." + std::to_string(n) + ".mlp.";
    description.layers[n].mlp = PlainMlp{biased(prefix + "fc1", tower.intermediate, tower.width),
                                         biased(prefix + "fc2", tower.width, tower.intermediate)};
  }
  return description;
}

TowerDescription qwen2_5_vl_tower(const ModelConfig& config) {
  const TowerConfig& tower = *config.vision->tower;
  TowerDescription description = tower_of(config, rms_norm);
  for (std::int32_t n = 0; n < tower.layers; ++n) {
    const std::string prefix = "visual.blocks." + std::to_string(n) + ".mlp.";
    description.layers[n].mlp =
        GatedMlp{.gate = biased(prefix + "gate_proj", tower.intermediate, tower.width),
                 .up = biased(prefix + "up_proj", tower.intermediate, tower.width),
                 .down = biased(prefix + "down_proj", tower.width, tower.intermediate)};
  }
  return description;
}

}  // namespace

const Family qwen2_vl{.class_name = "Qwen2VLForConditionalGeneration",
                      .model_type = "qwen2_vl",
                      .describe = dense_decoder,
                      .qkv_bias = true,
                      .windows = Windows::by_layer,
                      .tower = TowerKeys::qwen2_vl,
                      .describe_tower = qwen2_vl_tower};

const Family qwen2_5_vl{.class_name = "Qwen2_5_VLForConditionalGeneration",
                        .model_type = "qwen2_5_vl",
                        .describe = dense_decoder,
                        .qkv_bias = true,
                        .windows = Windows::by_layer,
                        .tower = TowerKeys::qwen2_5_vl,
                        .describe_tower = qwen2_5_vl_tower};

}  // namespace paceline::model
