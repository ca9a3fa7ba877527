// A model's own next-token layer as a head (multi-token prediction: DeepSeek-V3, arXiv 2412.19437,
// section 2.2; tensors as in the published checkpoints).
//
// `eh_proj` joins a token's embedding and a feature, each normalised (enorm, hnorm), to the input
// of a layer like the model's, with latent attention and experts; `shared_head` makes logits from
// the layer's outcome. A feature is the model's last hidden state after its last norm, as in vLLM,
// SGLang and TensorRT-LLM. The decoder stores the state before this norm (Decoder::features()), and
// the head applies the norm. After the target's features end, a row's feature is the head's outcome
// after `shared_head.norm`, as in SGLang and TensorRT-LLM, so that both kinds of features are
// inputs of an output layer; vLLM takes the outcome before this norm. Of several next-token layers
// the first drafts every token.
#include "runtime/model/heads.hpp"

#include <cstdint>

#include "runtime/model/latent_attention.hpp"
#include "runtime/model/mlp.hpp"

namespace paceline::model {
namespace {

class MtpHead final : public FeatureHead {
 public:
  explicit MtpHead(const HeadParts& parts)
      : FeatureHead(parts),
        attention_(activations_, layer(), shard_, most_.rows, weights_->compute()),
        experts_(activations_, layer(), shard_, parts.group, most_.rows, weights_->compute(),
                 false),
        stored_features_(activations_.make<float>(most_.rows, layer().hidden)) {}

 private:
  void take(std::span<const std::byte> features) override {
    write(floats_of(features, weights_->compute()), stored_features_);
  }

  void compute(kernels::Operations& operations, bool of_target) override {
    const LayerWeights& weights = weights_->layers()[0];
    const kernels::PassRows& part = operations.rows();
    const int hidden = layer().hidden;
    float* const delta = delta_.row(part.first_row);
    std::byte* const normed = normed_.row(part.first_row);

    if (of_target) {
      norm(operations, stored_features_.row(part.first_row), nullptr, weights_->fc_norms()[0],
           features_.row(part.first_row));
    }
    join(operations, weights_->token_norm());
    float* const residual = embedded_.row(part.first_row);  // embeddings have been read
    operations.linear(weights_->fc(), input_.row(part.first_row), part.rows, residual);
    norm(operations, residual, nullptr, weights.attention_norm, normed);
    attention_.compute(operations, std::get<LatentWeights>(weights.attention), rope_view_, 0,
                       normed, delta);
    norm(operations, residual, delta, weights.mlp_norm, normed);
    experts_.compute(operations, 0, std::get<ExpertWeights>(weights.mlp), normed, delta);
    if (part.logit_rows == 0) return;
    float* const outcome = feature_normed_.row(part.first_row);
    norm(operations, residual, delta, weights_->final_norm(), outcome);
    operations.store_columns(outcome, part.rows, hidden, weights_->compute(), normed, hidden, 0);
    finish(operations, normed, outcome);
  }

  LatentAttentionPass attention_;
  ExpertMlpPass experts_;
  Activation<float> stored_features_;  ///< [max_rows, hidden] not yet normalised
};

}  // namespace

std::unique_ptr<FeatureHead> make_mtp_head(const HeadParts& parts) {
  return std::make_unique<MtpHead>(parts);
}

std::uint64_t own_row_bytes(const MtpConfig& config, DType /*compute*/) {
  return sizeof(float) * static_cast<std::uint64_t>(config.layer.hidden);
}

}  // namespace paceline::model
