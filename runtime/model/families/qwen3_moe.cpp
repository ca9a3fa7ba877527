// Qwen3 with experts: Qwen3-30B-A3B, Qwen3-235B-A22B.
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {
namespace {

ModelDescription describe(const ModelConfig& config) {
  return decoder(config, [&config](const std::string& prefix, std::int32_t n) {
    LayerDescription layer = dense_layer(config, prefix, config.hidden);
    if (config.experts->in_layer(n)) layer.mlp = expert_mlp(config, prefix + "mlp.");
    return layer;
  });
}

}  // namespace

const Family qwen3_moe{.class_name = "Qwen3MoeForCausalLM",
                       .model_type = "qwen3_moe",
                       .describe = describe,
                       .attention_bias_key = true,
                       .head_norms = true,
                       .needs_head_dim = true,
                       .windows = Windows::by_layer,
                       .experts = ExpertKeys::qwen3};

}  // namespace paceline::model
