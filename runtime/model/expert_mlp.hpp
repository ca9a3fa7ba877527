// A layer's experts on one rank, as operations of a pass.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/model/activations.hpp"
#include "runtime/model/gated_mlp.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

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
