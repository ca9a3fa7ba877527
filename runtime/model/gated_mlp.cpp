#include "runtime/model/gated_mlp.hpp"

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

}  // namespace paceline::model
