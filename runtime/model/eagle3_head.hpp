// An EAGLE-3 head (EAGLE-3, arXiv 2503.01840, section 3.1; tensors and order of operations as of
// SafeAILab's checkpoints): the target's features are brought to the head's width by `fc` (in
// EAGLE-3.1 after norms of its own), and attention reads the embedding of a token beside them.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/feature_head.hpp"
#include "runtime/model/gated_mlp.hpp"
#include "runtime/model/grouped_attention.hpp"

namespace paceline::model {

class Eagle3Head final : public FeatureHead {
 public:
  /// As make_head(). The weights are an EAGLE-3 head's.
  Eagle3Head(kernels::Backend& backend, std::shared_ptr<const HeadWeights> weights,
             std::shared_ptr<const kernels::Embedding> embedding, int max_rows, int max_logit_rows,
             int max_position);

  /// Bytes of a row of its buffers beside the buffers of all heads.
  [[nodiscard]] static std::uint64_t row_bytes(const Eagle3Config& config, DType compute);

 private:
  void take(std::span<const std::byte> features) override;
  void compute(kernels::Operations& operations, bool of_target) override;
  void norm_features(kernels::Operations& operations);

  const Eagle3Config& config_;
  GroupedAttentionPass attention_;
  GatedMlpPass mlp_;
  Activation<std::byte> target_features_;           ///< [max_rows, features * target_hidden]
  std::vector<Activation<float>> stored_features_;  ///< as fc_norms(): what they normalise
  Activation<float> part_normed_;                   ///< [max_rows, target_hidden]
};

}  // namespace paceline::model
