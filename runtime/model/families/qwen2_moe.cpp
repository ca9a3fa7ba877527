// Qwen2 with experts: Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B. Every row also uses a shared expert, which
// is scaled by a gate of its own.
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {
namespace {

ExpertMlp experts(const ModelConfig& config, const std::string& prefix) {
  ExpertMlp mlp = expert_mlp(config, prefix);
  mlp.shared = gated_mlp(prefix + "shared_expert.", config.hidden, config.experts->shared_width);
  mlp.shared_gate = {prefix + "shared_expert_gate", 1, config.hidden};
  return mlp;
}

ModelDescription describe(const ModelConfig& config) {
  return decoder(config, [&config](const std::string& prefix, std::int32_t n) {
    LayerDescription layer = dense_layer(config, prefix, config.hidden);
    if (config.experts->in_layer(n)) layer.mlp = experts(config, prefix + "mlp.");
    return layer;
  });
}

}  // namespace

const Family qwen2_moe{.class_name = "Qwen2MoeForCausalLM",
                       .model_type = "qwen2_moe",
                       .describe = describe,
                       .qkv_bias = true,
                       .windows = Windows::by_layer,
                       .experts = ExpertKeys::qwen2};

}  // namespace paceline::model
