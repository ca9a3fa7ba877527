#include "io/checkpoint/model_config_parts.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

namespace paceline::io {
namespace {

using nlohmann::json;

constexpr std::int32_t kMostWidth = 1 << 24;  // elements; far above any model
constexpr std::int32_t kMostCount = 1 << 14;  // layers, experts

/// Reads the experts of a layer and of a row. `keys`: names of the first; one must be present.
void read_counts(const JsonSection& config, std::span<const char* const> keys,
                 ExpertConfig& experts) {
  const auto key = std::find_if(keys.begin(), keys.end(),
                                [&](const char* name) { return config.find(name) != nullptr; });
  config.require(std::array{key == keys.end() ? keys.front() : *key, "num_experts_per_tok"});
  experts.routed = *config.integer(*key, 1, kMostCount);
  experts.chosen = *config.integer("num_experts_per_tok", 1, experts.routed);
}

void read_width(const JsonSection& config, ExpertConfig& experts) {
  config.require(std::array{"moe_intermediate_size"});
  experts.width = *config.integer("moe_intermediate_size", 1, kMostWidth);
}

/// Layers without experts: those that mlp_only_layers names, and all but every
/// decoder_sparse_step-th.
std::vector<std::int32_t> read_dense_layers(const JsonSection& config, std::int32_t layers) {
  const std::int32_t step = config.integer("decoder_sparse_step", 1, kMostCount).value_or(1);
  std::vector<bool> dense(layers);
  for (std::int32_t n = 0; n < layers; ++n) dense[n] = (n + 1) % step != 0;
  if (const json* named = config.find("mlp_only_layers")) {
    const auto is_layer = [layers](const json& layer) {
      return layer.is_number_integer() && layer >= 0 && layer < layers;
    };
    if (!named->is_array() || !std::all_of(named->begin(), named->end(), is_layer))
      config.fail_expected("mlp_only_layers", "a list of layers");
    for (const json& layer : *named) dense[layer.get<std::int32_t>()] = true;
  }
  std::vector<std::int32_t> all;
  for (std::int32_t n = 0; n < layers; ++n) {
    if (dense[n]) all.push_back(n);
  }
  return all;
}

// Files of transformers 4 have "num_experts"; version 5 writes "num_local_experts".
ExpertConfig read_qwen(const JsonSection& config, std::int32_t layers) {
  ExpertConfig experts;
  read_counts(config, std::array{"num_experts", "num_local_experts"}, experts);
  read_width(config, experts);
  experts.normalised = config.flag("norm_topk_prob");
  experts.dense_layers = read_dense_layers(config, layers);
  return experts;
}

ExpertConfig read_mixtral(const JsonSection& config, std::int32_t intermediate) {
  ExpertConfig experts;
  read_counts(config, std::array{"num_local_experts"}, experts);
  experts.width = intermediate;
  experts.normalised = true;
  return experts;
}

/// Reads how DeepSeek-V3 chooses experts.
void read_sigmoid_routing(const JsonSection& config, ExpertConfig& experts) {
  config.choice("scoring_func", {{"sigmoid"}});
  config.choice("topk_method", {{"noaux_tc"}});
  experts.sigmoid = experts.corrected = true;
  experts.scale = static_cast<float>(config.number("routed_scaling_factor", 0, 1e6).value_or(1));
  experts.groups = config.integer("n_group", 1, experts.routed).value_or(1);
  experts.chosen_groups = config.integer("topk_group", 1, experts.groups).value_or(experts.groups);
  const std::int32_t size = experts.routed / experts.groups;
  if (experts.routed % experts.groups != 0 || (experts.groups > 1 && size < 2)) {
    config.fail_expected("n_group", "groups of equally many of n_routed_experts (" +
                                        std::to_string(experts.routed) + "), two at least");
  }
  if (experts.chosen > size * experts.chosen_groups) {
    config.fail_expected("topk_group", "groups of num_experts_per_tok experts (" +
                                           std::to_string(experts.chosen) + ") or more");
  }
}

ExpertConfig read_deepseek(const JsonSection& config, std::int32_t layers) {
  ExpertConfig experts;
  // Other releases of the model have other values, and no tensor shape would reveal a wrong one.
  config.require(std::array{"first_k_dense_replace", "n_group", "topk_group", "norm_topk_prob",
                            "routed_scaling_factor"});
  read_counts(config, std::array{"n_routed_experts"}, experts);
  read_width(config, experts);
  // Only layers in a row may have experts.
  if (config.integer("moe_layer_freq", 1, kMostCount).value_or(1) != 1)
    config.fail_expected("moe_layer_freq", "1");
  experts.shared_width = experts.width * config.integer("n_shared_experts", 0, 64).value_or(0);
  experts.normalised = config.flag("norm_topk_prob");
  read_sigmoid_routing(config, experts);
  experts.dense_layers.resize(*config.integer("first_k_dense_replace", 0, layers));
  std::iota(experts.dense_layers.begin(), experts.dense_layers.end(), 0);
  return experts;
}

}  // namespace

void read_experts(const JsonSection& config, ModelConfig& model) {
  switch (model.family->experts) {
    case ExpertKeys::none:
      return;
    case ExpertKeys::qwen2:
      model.experts = read_qwen(config, model.layers);
      config.require(std::array{"shared_expert_intermediate_size"});
      model.experts->shared_width =
          *config.integer("shared_expert_intermediate_size", 1, kMostWidth);
      return;
    case ExpertKeys::qwen3:
      model.experts = read_qwen(config, model.layers);
      return;
    case ExpertKeys::mixtral:
      model.experts = read_mixtral(config, model.intermediate);
      return;
    case ExpertKeys::deepseek:
      model.experts = read_deepseek(config, model.layers);
      return;
  }
}

}  // namespace paceline::io
