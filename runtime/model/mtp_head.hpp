// A model's own next-token layer as a head (multi-token prediction: DeepSeek-V3, arXiv 2412.19437,
// section 2.2; tensors as of the published checkpoints).
//
// `eh_proj` joins the embedding of a token and a feature, each normalised (enorm, hnorm), to the
// input of a layer as of the model, with latent attention and experts; `shared_head` makes logits
// of its outcome. A feature is the model's last hidden state after its last norm, as vLLM, SGLang
// and TensorRT-LLM have it. The decoder hands it on before that norm (Decoder::features()), and the
// head applies it. Rows that follow on the head's own go on from its outcome after
// `shared_head.norm`, as in SGLang and TensorRT-LLM, so that both are states that a head of logits
// reads; vLLM takes them before it. Of several layers the first drafts every token.
#pragma once

#include <cstdint>

#include "runtime/model/expert_mlp.hpp"
#include "runtime/model/feature_head.hpp"
#include "runtime/model/latent_attention.hpp"

namespace paceline::model {

class MtpHead final : public FeatureHead {
 public:
  /// As make_head(). The weights are a next-token layer's.
  MtpHead(kernels::Backend& backend, std::shared_ptr<const HeadWeights> weights,
          std::shared_ptr<const kernels::Embedding> embedding, TensorParallelGroup& group,
          int max_rows, int max_logit_rows, int max_position);

  /// Bytes of a row of its buffers beside the buffers of all heads.
  [[nodiscard]] static std::uint64_t row_bytes(const MtpConfig& config);

 private:
  void take(std::span<const std::byte> features) override;
  void compute(kernels::Operations& operations, bool of_target) override;

  LatentAttentionPass attention_;
  ExpertMlpPass experts_;
  Activation<float> stored_features_;  ///< [max_rows, hidden] before the model's last norm
};

}  // namespace paceline::model
