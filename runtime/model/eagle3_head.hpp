// An EAGLE-3 head (EAGLE-3, arXiv 2503.01840, section 3.1; tensors and order of operations as in
// SafeAILab's checkpoints). `fc` brings the target's features to the head's width (in EAGLE-3.1
// after norms of their own). The first layer's attention reads a token's embedding and these
// features side by side; further layers, as in vLLM, are ordinary ones.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/feature_head.hpp"
#include "runtime/model/gated_mlp.hpp"
#include "runtime/model/grouped_attention.hpp"

namespace paceline::model {

class Eagle3Head final : public FeatureHead {
 public:
  /// Parameters as for make_head(). `weights`: of an EAGLE-3 head.
  Eagle3Head(kernels::Backend& backend, std::shared_ptr<const HeadWeights> weights,
             std::shared_ptr<const kernels::Embedding> embedding, int max_rows, int max_logit_rows,
             int max_position);

  /// Bytes of a row of the buffers that only this kind of head has.
  [[nodiscard]] static std::uint64_t row_bytes(const Eagle3Config& config, DType compute);

 private:
  void take(std::span<const std::byte> features) override;
  void compute(kernels::Operations& operations, bool of_target) override;
  void norm_features(kernels::Operations& operations);

  const Eagle3Config& config_;
  GroupedAttentionPass attention_;
  GatedMlpPass mlp_;
  Activation<std::byte> target_features_;           ///< [max_rows, features * target_hidden]
  std::vector<Activation<float>> stored_features_;  ///< inputs of fc_norms(), one each
  Activation<float> part_normed_;                   ///< [max_rows, target_hidden]
};

}  // namespace paceline::model
