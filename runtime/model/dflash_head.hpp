// A DFlash head (arXiv 2602.06036; tensors and order of operations as in z-lab's checkpoints). Rows
// with the target's features store the context: each layer's keys and values of a position. They
// have no logits. Rows without features are of blocks: the caller lets all rows of a block see the
// context and the whole block (kernels::Segment::seen). Context rows compute queries too, which
// nobody reads: q, k and v are one matrix.
#pragma once

#include <cstdint>

#include "runtime/model/feature_head.hpp"
#include "runtime/model/gated_mlp.hpp"
#include "runtime/model/grouped_attention.hpp"

namespace paceline::model {

class DFlashHead final : public FeatureHead {
 public:
  /// Parameters as for make_head(). `weights`: of a DFlash head.
  DFlashHead(kernels::Backend& backend, std::shared_ptr<const HeadWeights> weights,
             std::shared_ptr<const kernels::Embedding> embedding, int max_rows, int max_logit_rows,
             int max_position);

  /// Bytes of a row of the buffers that only this kind of head has.
  [[nodiscard]] static std::uint64_t row_bytes(const DFlashConfig& config, DType compute);

 private:
  void take(std::span<const std::byte> features) override;
  void compute(kernels::Operations& operations, bool of_target) override;
  void store_context(kernels::Operations& operations);
  void compute_blocks(kernels::Operations& operations);

  GroupedAttentionPass attention_;
  GatedMlpPass mlp_;
  Activation<std::byte> target_features_;  ///< [max_rows, features * target_hidden]
};

}  // namespace paceline::model
