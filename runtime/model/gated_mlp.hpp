// A gated MLP, of which a rank has a share of the width, as operations of a pass.
#pragma once

#include <cstdint>

#include "kernels/backend.hpp"
#include "runtime/model/activations.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

/// Computes any layer of a model, in one set of buffers for its largest pass: layers run one after
/// another.
class GatedMlpPass {
 public:
  /// `width`: width of this rank's share. `max_rows`: as the backend pads them.
  GatedMlpPass(Activations& activations, std::int64_t width, int max_rows, DType compute);

  /// `input`: [rows, hidden] of the compute dtype. `delta`: [rows, hidden] this rank's partial
  /// sums, without the bias.
  void compute(kernels::Operations& operations, const MlpWeights& weights, const std::byte* input,
               float* delta);

  /// Bytes of one row of the buffers, on a backend that applies gates within the product.
  [[nodiscard]] static std::uint64_t row_bytes(std::int64_t width, DType compute) {
    return width * size_of(compute);
  }

 private:
  DType compute_;
  Activation<float> gate_up_;    ///< [max_rows, 2 * width], if Backend::gates_in_work()
  Activation<std::byte> gated_;  ///< [max_rows, width] of the compute dtype
};

}  // namespace paceline::model
