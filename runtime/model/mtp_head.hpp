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
#pragma once

#include <cstdint>

#include "runtime/model/expert_mlp.hpp"
#include "runtime/model/feature_head.hpp"
#include "runtime/model/latent_attention.hpp"

namespace paceline::model {

class MtpHead final : public FeatureHead {
 public:
  /// Parameters as for make_head(). `weights`: of a next-token layer.
  MtpHead(kernels::Backend& backend, std::shared_ptr<const HeadWeights> weights,
          std::shared_ptr<const kernels::Embedding> embedding, TensorParallelGroup& group,
          int max_rows, int max_logit_rows, int max_position);

  /// Bytes of a row of the buffers that only this kind of head has.
  [[nodiscard]] static std::uint64_t row_bytes(const MtpConfig& config);

 private:
  void take(std::span<const std::byte> features) override;
  void compute(kernels::Operations& operations, bool of_target) override;

  LatentAttentionPass attention_;
  ExpertMlpPass experts_;
  Activation<float> stored_features_;  ///< [max_rows, hidden] not yet normalised
};

}  // namespace paceline::model
