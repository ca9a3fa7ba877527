// Mixtral: Mistral with experts in every layer, whose gate, down and up are called w1, w2 and w3.
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {
namespace {

ModelDescription describe(const ModelConfig& config) {
  return decoder(config, [&config](const std::string& prefix, std::int32_t) {
    const std::string moe = prefix + "block_sparse_moe.";
    ExpertMlp experts = expert_mlp(config, moe);
    experts.every.gate.name = moe + "experts.{}.w1";
    experts.every.down.name = moe + "experts.{}.w2";
    experts.every.up.name = moe + "experts.{}.w3";
    LayerDescription layer = dense_layer(config, prefix, config.hidden);
    layer.mlp = experts;
    return layer;
  });
}

}  // namespace

const Family mixtral{.class_name = "MixtralForCausalLM",
                     .model_type = "mixtral",
                     .describe = describe,
                     .windows = Windows::all,
                     .experts = ExpertKeys::mixtral};

}  // namespace paceline::model
