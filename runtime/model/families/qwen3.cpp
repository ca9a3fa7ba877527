// Qwen3, dense and with experts.
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {
namespace {

ModelDescription describe_moe(const ModelConfig& config) {
  return decoder(config, [&config](const std::string& prefix, std::int32_t n) {
    LayerDescription layer = dense_layer(config, prefix, config.hidden);
    if (!config.experts->in_layer(n)) return layer;
    const std::string mlp = prefix + "mlp.";
    layer.mlp =
        ExpertMlp{.router = {mlp + "gate", config.experts->routed, config.hidden},
                  .expert = gated_mlp(mlp + "experts.{}.", config.hidden, config.experts->width),
                  .shared = {}};
    return layer;
  });
}

}  // namespace

const Family qwen3{.class_name = "Qwen3ForCausalLM",
                   .model_type = "qwen3",
                   .describe = dense_decoder,
                   .attention_bias_key = true,
                   .head_norms = true,
                   .needs_head_dim = true,
                   .windows = Windows::by_layer};

const Family qwen3_moe{.class_name = "Qwen3MoeForCausalLM",
                       .model_type = "qwen3_moe",
                       .describe = describe_moe,
                       .attention_bias_key = true,
                       .head_norms = true,
                       .needs_head_dim = true,
                       .windows = Windows::by_layer,
                       .experts = ExpertKeys::qwen,
                       .computed = false};

}  // namespace paceline::model
