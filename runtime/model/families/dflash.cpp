// DFlash heads (arXiv 2602.06036), by the names of the published checkpoints: layers of Qwen3's
// kind, whatever the target.
#include "runtime/core/head_config.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {

HeadDescription describe_dflash(const DFlashConfig& config) {
  const ModelConfig& layer = config.layer;
  HeadDescription head;
  head.fc = {"fc", layer.hidden, config.features() * std::int64_t{config.target_hidden}};
  head.feature_norm = {"hidden_norm", layer.hidden};
  for (int n = 0; n < layer.layers; ++n)
    head.layers.push_back(dense_layer(layer, "layers." + std::to_string(n) + ".", layer.hidden));
  head.final_norm = {"norm", layer.hidden};
  const bool embeddings = !config.own_output && layer.tied_embeddings;
  head.output = {embeddings ? "model.embed_tokens" : "lm_head", config.draft_vocab, layer.hidden};
  if (config.own_embeddings) head.embedding = {"embed_tokens", layer.vocab, layer.hidden};
  return head;
}

}  // namespace paceline::model
