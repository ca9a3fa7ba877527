// A model of the job: the target, or a draft model.
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::app {

/// A model's description, its weights, and the dtype in which it computes.
struct ModelCheckpoint {
  ModelConfig config;
  std::unique_ptr<io::Checkpoint> weights;  ///< null: weights are absent, and nothing is computed
  DType compute = DType::bf16;

  /// Opens the weights of a directory, and checks them against `config`. If there are experts,
  /// finds out whether routers are stored in fp32 (wide_router). Throws as io::Checkpoint and
  /// io::check_tensor_shapes() do.
  void read_weights(const std::string& directory) {
    weights = std::make_unique<io::Checkpoint>(directory);
    io::check_tensor_shapes(config, *weights);
    // If most weights are stored in fp32, no router is stored in a wider dtype.
    if (config.experts && stored() != DType::f32)
      config.experts->wide_router = io::stores_wide_router(config, *weights);
  }
  /// The dtype in which most weights are stored; config.json's if weights are absent.
  [[nodiscard]] DType stored() const {
    return weights == nullptr ? config.dtype : io::stored_dtype(config, *weights);
  }
};

}  // namespace paceline::app
