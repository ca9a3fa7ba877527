// A DFlash head (arXiv 2602.06036; tensors and order of operations as in z-lab's checkpoints). Rows
// with the target's features store the context: each layer's keys and values of a position. They
// have no logits. Rows without features are of blocks: the caller lets all rows of a block see the
// context and the whole block (kernels::Segment::seen). Context rows compute queries too, which
// nobody reads: q, k and v are one matrix.
#include "runtime/model/heads.hpp"

#include <cstdint>
#include <utility>

#include "runtime/model/grouped_attention.hpp"
#include "runtime/model/mlp.hpp"

namespace paceline::model {
namespace {

class DFlashHead final : public FeatureHead {
 public:
  explicit DFlashHead(HeadParts parts)
      : FeatureHead(std::move(parts)),
        attention_(activations_, layer(), shard_, most_.rows, weights_->compute()),
        mlp_(activations_, layer().intermediate, most_.rows, weights_->compute()),
        target_features_(activations_.make<std::byte>(most_.rows, feature_bytes())) {}

 private:
  void take(std::span<const std::byte> features) override {
    backend_.write(target_features_.row(0), features);
  }

  void compute(kernels::Operations& operations, bool of_target) override {
    if (of_target) {
      store_context(operations);
    } else {
      compute_blocks(operations);
    }
  }

  void store_context(kernels::Operations& operations) {
    const kernels::PassRows& part = operations.rows();
    float* const context = features_.row(part.first_row);
    std::byte* const normed = normed_.row(part.first_row);
    operations.linear(weights_->fc(), target_features_.row(part.first_row), part.rows, context);
    norm(operations, context, nullptr, weights_->feature_norm(), normed);
    for (int n = 0; n < layer().layers; ++n) {
      attention_.store(operations, std::get<AttentionWeights>(weights_->layers()[n].attention),
                       rope_view_, n, normed);
    }
  }

  void compute_blocks(kernels::Operations& operations) {
    const kernels::PassRows& part = operations.rows();
    float* const residual = embedded_.row(part.first_row);
    float* const delta = delta_.row(part.first_row);
    std::byte* const normed = normed_.row(part.first_row);

    operations.embed(*embedding_, residual);
    for (int n = 0; n < layer().layers; ++n) {
      const LayerWeights& weights = weights_->layers()[n];
      norm(operations, residual, n > 0 ? delta : nullptr, weights.attention_norm, normed);
      attention_.compute(operations, std::get<AttentionWeights>(weights.attention), rope_view_, n,
                         normed, delta);
      norm(operations, residual, delta, weights.mlp_norm, normed);
      mlp_.compute(operations, std::get<MlpWeights>(weights.mlp), normed, delta);
    }
    if (part.logit_rows == 0) return;
    norm(operations, residual, delta, weights_->final_norm(), normed);
    finish(operations, normed, residual);
  }

  GroupedAttentionPass attention_;
  GatedMlpPass mlp_;
  Activation<std::byte> target_features_;  ///< [max_rows, features * target_hidden]
};

}  // namespace

std::unique_ptr<FeatureHead> make_dflash_head(HeadParts parts) {
  return std::make_unique<DFlashHead>(std::move(parts));
}

std::uint64_t own_row_bytes(const DFlashConfig& config, DType compute) {
  return static_cast<std::uint64_t>(config.features()) * config.target_hidden * size_of(compute);
}

}  // namespace paceline::model
