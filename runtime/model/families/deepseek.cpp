// DeepSeek-V3, and Moonlight and Kimi-K2, which have its architecture.
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {
namespace {

LatentAttention latent_attention(const ModelConfig& config, const std::string& prefix) {
  const LatentConfig& latent = *config.latent;
  const std::int64_t queries = std::int64_t{config.heads} * (config.head_dim + latent.rope);
  const std::int64_t values = std::int64_t{config.heads} * latent.value_dim;
  LatentAttention attention;
  attention.heads = config.heads;
  if (latent.q_rank > 0) {
    attention.q_down = {prefix + "q_a_proj", latent.q_rank, config.hidden};
    attention.q_norm = {prefix + "q_a_layernorm", latent.q_rank};
    attention.q = {prefix + "q_b_proj", queries, latent.q_rank, Cut::even};
  } else {
    attention.q = {prefix + "q_proj", queries, config.hidden, Cut::even};
  }
  attention.kv_down = {prefix + "kv_a_proj_with_mqa", latent.kv_rank + latent.rope, config.hidden};
  attention.kv_norm = {prefix + "kv_a_layernorm", latent.kv_rank};
  attention.kv_up = {prefix + "kv_b_proj",
                     std::int64_t{config.heads} * (config.head_dim + latent.value_dim),
                     latent.kv_rank, Cut::even};
  attention.output = {prefix + "o_proj", config.hidden, values, Cut::whole, Cut::even};
  return attention;
}

ExpertMlp experts(const ModelConfig& config, const std::string& prefix) {
  ExpertMlp mlp = expert_mlp(config, prefix);
  if (config.experts->corrected)
    mlp.correction = {prefix + "gate.e_score_correction_bias", config.experts->routed};
  if (config.experts->shared_width > 0)
    mlp.shared = gated_mlp(prefix + "shared_experts.", config.hidden, config.experts->shared_width);
  return mlp;
}

LayerDescription decoder_layer(const ModelConfig& config, const std::string& prefix, bool mixture) {
  LayerDescription layer = dense_layer(config, prefix, config.hidden);
  layer.attention = latent_attention(config, prefix + "self_attn.");
  if (mixture) layer.mlp = experts(config, prefix + "mlp.");
  return layer;
}

ModelDescription describe(const ModelConfig& config) {
  return decoder(config, [&config](const std::string& prefix, std::int32_t n) {
    return decoder_layer(config, prefix, config.experts->in_layer(n));
  });
}

// The feature norm of a next-token layer is the model's last norm: the layer reads the input of the
// model's output layer.
HeadDescription describe_next_token(const MtpConfig& config) {
  const ModelConfig& layer = config.layer;
  const std::string prefix = "model.layers." + std::to_string(config.number) + ".";
  const ModelDescription model = layer.family->describe(layer);
  HeadDescription head;
  head.fc = {prefix + "eh_proj", layer.hidden, 2 * std::int64_t{layer.hidden}};
  head.fc_norms = {model.final_norm};
  head.token_norm = {prefix + "enorm", layer.hidden};
  head.feature_norm = {prefix + "hnorm", layer.hidden};
  head.layers = {decoder_layer(layer, prefix, layer.experts->in_layer(0))};
  head.final_norm = {prefix + "shared_head.norm", layer.hidden};
  head.output = layer.tied_embeddings ? model.embedding : model.head;
  if (config.own_output) head.output.name = prefix + "shared_head.head";
  head.output.output_cut = Cut::whole;
  if (config.own_embeddings)
    head.embedding = Projection{prefix + "embed_tokens", layer.vocab, layer.hidden};
  return head;
}

}  // namespace

const Family deepseek{.class_name = "DeepseekV3ForCausalLM",
                      .model_type = "deepseek_v3",
                      .describe = describe,
                      .other_model_type = "kimi_k2",
                      .needs_kv_heads = false,
                      .experts = ExpertKeys::deepseek,
                      .latent_attention = true,
                      .describe_next_token = describe_next_token};

}  // namespace paceline::model
