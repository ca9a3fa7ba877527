// The MLPs of a layer on one rank, as operations of a pass: a gated MLP, of which a rank has a
// share of the width, and experts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/model/activations.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

/// Computes the gated MLP of any layer of a model, in one set of buffers for its largest pass:
/// layers run one after another.
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

/// Computes any layer with experts of a model, in buffers for its largest pass.
class ExpertMlpPass {
 public:
  /// `max_rows`: as the backend pads them. `group` must outlive this object. `given`: the caller
  /// calls give() before each pass.
  ExpertMlpPass(Activations& activations, const ModelConfig& config, const Shard& shard,
                TensorParallelGroup& group, int max_rows, DType compute, bool given);

  /// Sets the experts of the next pass's rows: [rows, layers with experts, chosen] ids, ascending
  /// in each layer.
  void give(std::span<const std::int16_t> experts);

  /// Computes one layer. `layer`: index among the layers with experts. `input`: [rows, hidden] of
  /// the compute dtype. `delta`: [rows, hidden] the layer's output, summed over the ranks: the
  /// chosen experts' outputs plus the shared expert's, which is scaled by its gate if it has one.
  void compute(kernels::Operations& operations, int layer, const ExpertWeights& weights,
               const std::byte* input, float* delta);

  /// Bytes of one row of the buffers.
  [[nodiscard]] static std::uint64_t row_bytes(const ModelConfig& config, const Shard& shard,
                                               DType compute);

 private:
  const ExpertConfig config_;
  int hidden_;
  TensorParallelGroup& group_;
  DType compute_;
  Activation<float> logits_;  ///< [max_rows, experts]
  Activation<float> part_;    ///< [max_rows, experts] by one part of a router of several
  bool given_;
  kernels::Backend& backend_;
  /// [max_rows, chosen] ids: one buffer for all layers in turn, or one for each layer where
  /// `given`.
  std::vector<Activation<std::int32_t>> ids_;
  Activation<float> weights_;        ///< [max_rows, chosen]
  Activation<std::byte> work_;       ///< [max_rows] of Backend::expert_row_bytes()
  std::optional<GatedMlpPass> mlp_;  ///< the shared expert's
  Activation<float> shared_;         ///< [max_rows, hidden]
  Activation<float> gates_;          ///< [max_rows]
};

}  // namespace paceline::model
