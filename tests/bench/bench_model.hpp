// A model to measure.
#pragma once

#include <memory>
#include <string>

#include "runtime/core/model_config.hpp"
#include "runtime/core/weight_source.hpp"
#include "tests/bench/random_weights.hpp"

namespace paceline::bench {

struct BenchModel {
  ModelConfig config;
  std::unique_ptr<WeightSource> weights;
  DType compute = DType::bf16;
};

/// The checkpoint in a folder, or random weights where there is a config.json alone (shapes/).
/// `later`: of random weights. Throws UsageError where a checkpoint is to have any.
[[nodiscard]] BenchModel load_model(const std::string& folder, const LaterLayers& later = {});
/// The first layers of a model of random weights, as a model.
[[nodiscard]] BenchModel first_layers(ModelConfig config, int layers);

}  // namespace paceline::bench
