#include "runtime/model/expert_mlp.hpp"

#include "kernels/expert_work.hpp"

namespace paceline::model {

ExpertMlpPass::ExpertMlpPass(Activations& activations, const ModelConfig& config,
                             const Shard& shard, TensorParallelGroup& group, int max_rows,
                             DType compute)
    : config_(*config.experts), hidden_(config.hidden), group_(group), compute_(compute) {
  logits_ = activations.make<float>(max_rows, config_.routed);
  for (int layer = config.dense_layers(); layer < config.layers; ++layer)
    ids_.push_back(activations.make<std::int32_t>(max_rows, config_.chosen));
  weights_ = activations.make<float>(max_rows, config_.chosen);
  work_ = activations.make<std::byte>(
      max_rows,
      activations.backend().expert_row_bytes(hidden_, config_.width, config_.chosen, compute));
  if (config_.shared_width == 0) return;
  mlp_.emplace(activations, shard.range(Cut::even, config_.shared_width).count, max_rows, compute);
  shared_ = activations.make<float>(max_rows, hidden_);
  gates_ = activations.make<float>(max_rows, 1);
}

void ExpertMlpPass::compute(kernels::Operations& operations, int layer,
                            const ExpertWeights& weights, const std::byte* input, float* delta) {
  const kernels::PassRows& part = operations.rows();
  const kernels::ExpertChoices choices{config_.chosen, ids_[layer].row(part.first_row),
                                       weights_.row(part.first_row)};
  float* const logits = logits_.row(part.first_row);
  operations.linear(*weights.router, input, part.rows, logits);
  operations.choose_experts(logits, part.rows,
                            {.experts = config_.routed,
                             .normalised = config_.normalised,
                             .sigmoid = config_.sigmoid,
                             .correction = floats(weights.correction),
                             .groups = config_.groups,
                             .chosen_groups = config_.chosen_groups,
                             .scale = config_.scale},
                            choices);
  operations.experts(weights.bank, choices, input, part.rows, compute_, work_.row(part.first_row),
                     delta);
  const std::size_t size = static_cast<std::size_t>(part.rows) * hidden_;
  group_.all_reduce_tree({delta, size});
  if (!weights.shared) return;
  float* const shared = shared_.row(part.first_row);
  mlp_->compute(operations, *weights.shared, input, shared);
  group_.all_reduce_tree({shared, size});
  float* gates = nullptr;
  if (weights.shared_gate != nullptr) {
    gates = gates_.row(part.first_row);
    operations.linear(*weights.shared_gate, input, part.rows, gates);
  }
  operations.add_gated(delta, shared, gates, part.rows, hidden_);
}

std::uint64_t ExpertMlpPass::row_bytes(const ModelConfig& config, const Shard& shard,
                                       DType compute) {
  const ExpertConfig& experts = *config.experts;
  const std::uint64_t layers = config.layers - experts.dense_layers.size();
  std::uint64_t bytes =
      sizeof(float) * (experts.routed + experts.chosen) +
      sizeof(std::int32_t) * layers * experts.chosen +
      kernels::ExpertWork::row_bytes(config.hidden, experts.width, experts.chosen, compute);
  if (experts.shared_width > 0) {
    const std::int64_t width = shard.range(Cut::even, experts.shared_width).count;
    bytes += GatedMlpPass::row_bytes(width, compute) + sizeof(float) * (config.hidden + 1);
  }
  return bytes;
}

}  // namespace paceline::model
