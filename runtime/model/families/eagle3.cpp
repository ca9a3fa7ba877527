// EAGLE-3, 3.1 and P-EAGLE heads (arXiv 2503.01840, 2605.09992, 2602.01469), by the names of the
// published checkpoints.
#include "runtime/core/head_config.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {

HeadDescription describe_eagle3(const Eagle3Config& config) {
  const ModelConfig& layer = config.layer;
  const std::int64_t features = config.features() * std::int64_t{config.target_hidden};
  HeadDescription head;
  head.fc = {"fc", layer.hidden, features};
  if (config.feature_norm == FeatureNorm::joined) head.fc_norms.push_back({"input_norm", features});
  if (config.feature_norm == FeatureNorm::each) {
    for (int i = 0; i < config.features(); ++i)
      head.fc_norms.push_back({"fc_norm." + std::to_string(i), config.target_hidden});
  }
  head.feature_norm = {config.prefix + "hidden_norm", layer.hidden};
  head.layers.push_back(dense_layer(layer, config.prefix, 2 * std::int64_t{layer.hidden}));
  for (int n = 1; n < layer.layers; ++n)
    head.layers.push_back(dense_layer(layer, "layers." + std::to_string(n) + ".", layer.hidden));
  head.final_norm = {"norm", layer.hidden};
  head.output = {"lm_head", config.draft_vocab, layer.hidden};
  if (config.mask_token) head.mask_feature = {"mask_hidden", features};
  if (config.own_embeddings) head.embedding = {"embed_tokens", layer.vocab, layer.hidden};
  return head;
}

}  // namespace paceline::model
