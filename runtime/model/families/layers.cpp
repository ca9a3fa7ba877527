#include "runtime/model/families/layers.hpp"

namespace paceline::model {

GroupedAttention grouped_attention(const ModelConfig& config, const std::string& prefix,
                                   std::int64_t width) {
  const std::int64_t queries = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t keys = std::int64_t{config.kv_heads} * config.head_dim;
  const bool bias = config.attention_bias;
  GroupedAttention attention{.q_norm = {},
                             .k_norm = {},
                             .q = {prefix + "q_proj", queries, width, Cut::even, Cut::whole, bias},
                             .k = {prefix + "k_proj", keys, width, Cut::even, Cut::whole, bias},
                             .v = {prefix + "v_proj", keys, width, Cut::even, Cut::whole, bias},
                             .output = {prefix + "o_proj", config.hidden, queries, Cut::whole,
                                        Cut::even, config.output_bias}};
  if (config.qk_norm) {
    attention.q_norm = {prefix + "q_norm", config.head_dim};
    attention.k_norm = {prefix + "k_norm", config.head_dim};
  }
  return attention;
}

GatedMlp gated_mlp(const std::string& prefix, std::int64_t hidden, std::int64_t width, bool bias) {
  return {.gate = {prefix + "gate_proj", width, hidden, Cut::even, Cut::whole, bias},
          .up = {prefix + "up_proj", width, hidden, Cut::even, Cut::whole, bias},
          .down = {prefix + "down_proj", hidden, width, Cut::whole, Cut::even, bias}};
}

namespace {

/// A gated MLP that one rank has whole.
GatedMlp whole_mlp(const std::string& prefix, std::int64_t hidden, std::int64_t width) {
  return {.gate = {prefix + "gate_proj", width, hidden},
          .up = {prefix + "up_proj", width, hidden},
          .down = {prefix + "down_proj", hidden, width}};
}

}  // namespace

ExpertMlp expert_mlp(const ModelConfig& config, const std::string& prefix) {
  const ExpertConfig& experts = *config.experts;
  return {.router = {prefix + "gate", experts.routed, config.hidden},
          .wide_router = experts.wide_router,
          .correction = {},
          .every = whole_mlp(prefix + "experts.{}.", config.hidden, experts.width),
          .shared = {},
          .shared_gate = {}};
}

LayerDescription dense_layer(const ModelConfig& config, const std::string& prefix,
                             std::int64_t attention_width) {
  return {.attention_norm = {prefix + "input_layernorm", config.hidden},
          .attention = grouped_attention(config, prefix + "self_attn.", attention_width),
          .mlp_norm = {prefix + "post_attention_layernorm", config.hidden},
          .mlp = gated_mlp(prefix + "mlp.", config.hidden, config.intermediate, config.mlp_bias)};
}

ModelDescription decoder(const ModelConfig& config, const DescribeLayer& layer) {
  ModelDescription model;
  model.embedding = {"model.embed_tokens", config.vocab, config.hidden, Cut::vocab};
  for (std::int32_t n = 0; n < config.layers; ++n)
    model.layers.push_back(layer("model.layers." + std::to_string(n) + ".", n));
  model.final_norm = {"model.norm", config.hidden};
  model.head = {"lm_head", config.vocab, config.hidden, Cut::vocab};
  model.tied_embeddings = config.tied_embeddings;
  return model;
}

ModelDescription dense_decoder(const ModelConfig& config) {
  return decoder(config, [&config](const std::string& prefix, std::int32_t) {
    return dense_layer(config, prefix, config.hidden);
  });
}

}  // namespace paceline::model
