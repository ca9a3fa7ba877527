#include "runtime/model/mlp.hpp"

#include "kernels/expert_work.hpp"

namespace paceline::model {

GatedMlpPass::GatedMlpPass(Activations& activations, std::int64_t width, int max_rows,
                           DType compute)
    : compute_(compute) {
  if (activations.backend().gates_in_work())
    gate_up_ = activations.make<float>(max_rows, 2 * width);
  gated_ = activations.make<std::byte>(max_rows, width * size_of(compute));
}

void GatedMlpPass::compute(kernels::Operations& operations, const MlpWeights& weights,
                           const std::byte* input, float* delta) {
  const kernels::PassRows& part = operations.rows();
  std::byte* const gated = gated_.row(part.first_row);
  operations.linear_swiglu(*weights.gate_up, input, part.rows, gate_up_.row(part.first_row),
                           compute_, gated);
  operations.linear(*weights.down, gated, part.rows, delta);
}

ExpertMlpPass::ExpertMlpPass(Activations& activations, const ModelConfig& config,
                             const Shard& shard, TensorParallelGroup& group, int max_rows,
                             DType compute, bool given)
    : config_(*config.experts),
      hidden_(config.hidden),
      group_(group),
      compute_(compute),
      given_(given),
      backend_(activations.backend()) {
  logits_ = activations.make<float>(max_rows, config_.routed);
  if (router_parts(config_.wide_router, compute) > 1)
    part_ = activations.make<float>(max_rows, config_.routed);
  const int layers = given ? config.layers - config.dense_layers() : 1;
  for (int layer = 0; layer < layers; ++layer)
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

void ExpertMlpPass::give(std::span<const std::int16_t> experts) {
  const std::size_t width = ids_.size() * config_.chosen;
  std::vector<std::int32_t> of_layer(experts.size() / ids_.size());
  for (std::size_t layer = 0; layer < ids_.size(); ++layer) {
    for (std::size_t i = 0; i < of_layer.size(); ++i) {
      of_layer[i] =
          experts[i / config_.chosen * width + layer * config_.chosen + i % config_.chosen];
    }
    backend_.write(reinterpret_cast<std::byte*>(ids_[layer].row(0)),
                   std::as_bytes(std::span(of_layer)));
  }
}

void ExpertMlpPass::compute(kernels::Operations& operations, int layer,
                            const ExpertWeights& weights, const std::byte* input, float* delta) {
  const kernels::PassRows& part = operations.rows();
  const kernels::ExpertChoices choices{config_.chosen, ids_[given_ ? layer : 0].row(part.first_row),
                                       weights_.row(part.first_row), given_};
  float* const logits = logits_.row(part.first_row);
  operations.linear(*weights.router[0], input, part.rows, logits);
  for (std::size_t i = 1; i < weights.router.size(); ++i) {
    float* const more = part_.row(part.first_row);
    operations.linear(*weights.router[i], input, part.rows, more);
    operations.add_gated(logits, more, nullptr, part.rows, config_.routed);
  }
  operations.choose_experts(logits, part.rows,
                            {.experts = config_.routed,
                             .normalised = config_.normalised,
                             .sigmoid = config_.sigmoid,
                             .correction = floats(weights.correction),
                             .groups = config_.groups,
                             .chosen_groups = config_.chosen_groups,
                             .scale = config_.scale},
                            choices);
  operations.store_experts(choices, layer * config_.chosen);
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
  std::uint64_t bytes =
      sizeof(float) * (experts.routed * (router_parts(experts.wide_router, compute) > 1 ? 2 : 1) +
                       experts.chosen) +
      sizeof(std::int32_t) * experts.chosen +
      kernels::ExpertWork::row_bytes(config.hidden, experts.width, experts.chosen, compute);
  if (experts.shared_width > 0) {
    const std::int64_t width = shard.range(Cut::even, experts.shared_width).count;
    bytes += GatedMlpPass::row_bytes(width, compute) + sizeof(float) * (config.hidden + 1);
  }
  return bytes;
}

}  // namespace paceline::model
