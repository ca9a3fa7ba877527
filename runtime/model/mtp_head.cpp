#include "runtime/model/mtp_head.hpp"

#include <utility>

namespace paceline::model {

MtpHead::MtpHead(kernels::Backend& backend, std::shared_ptr<const HeadWeights> weights,
                 std::shared_ptr<const kernels::Embedding> embedding, TensorParallelGroup& group,
                 int max_rows, int max_logit_rows, int max_position)
    : FeatureHead(backend, std::move(weights), std::move(embedding), max_rows, max_logit_rows,
                  max_position),
      attention_(activations_, layer(), shard_, most_.rows, weights_->compute()),
      experts_(activations_, layer(), shard_, group, most_.rows, weights_->compute(), false),
      stored_features_(activations_.make<float>(most_.rows, layer().hidden)) {}

std::uint64_t MtpHead::row_bytes(const MtpConfig& config) {
  return sizeof(float) * static_cast<std::uint64_t>(config.layer.hidden);
}

void MtpHead::take(std::span<const std::byte> features) {
  write(floats_of(features, weights_->compute()), stored_features_);
}

void MtpHead::compute(kernels::Operations& operations, bool of_target) {
  const LayerWeights& weights = weights_->layers()[0];
  const DType dtype = weights_->compute();
  const float epsilon = layer().norm_epsilon;
  const kernels::PassRows& part = operations.rows();
  const int rows = part.rows;
  const int hidden = layer().hidden;
  float* const delta = delta_.row(part.first_row);
  std::byte* const normed = normed_.row(part.first_row);

  if (of_target) {
    operations.add_rmsnorm(stored_features_.row(part.first_row), nullptr,
                           floats(weights_->fc_norms()[0]), epsilon, rows, hidden, DType::f32,
                           reinterpret_cast<std::byte*>(features_.row(part.first_row)));
  }
  join(operations, weights_->token_norm());
  float* const residual = embedded_.row(part.first_row);  // embeddings have been read
  operations.linear(weights_->fc(), input_.row(part.first_row), rows, residual);
  operations.add_rmsnorm(residual, nullptr, floats(weights.attention_norm), epsilon, rows, hidden,
                         dtype, normed);
  attention_.compute(operations, std::get<LatentWeights>(weights.attention), rope_view_, 0, normed,
                     delta);
  operations.add_rmsnorm(residual, delta, floats(weights.mlp_norm), epsilon, rows, hidden, dtype,
                         normed);
  experts_.compute(operations, 0, std::get<ExpertWeights>(weights.mlp), normed, delta);
  if (part.logit_rows == 0) return;
  float* const outcome = feature_normed_.row(part.first_row);
  operations.add_rmsnorm(residual, delta, floats(weights_->final_norm()), epsilon, rows, hidden,
                         DType::f32, reinterpret_cast<std::byte*>(outcome));
  operations.store_columns(outcome, rows, hidden, dtype, normed, hidden, 0);
  finish(operations, normed, outcome);
}

}  // namespace paceline::model
