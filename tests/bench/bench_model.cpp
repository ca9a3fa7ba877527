#include "tests/bench/bench_model.hpp"

#include <filesystem>
#include <limits>
#include <utility>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/error.hpp"
#include "runtime/model/families/families.hpp"

namespace paceline::bench {

BenchModel load_model(const std::string& folder, const LaterLayers& later) {
  BenchModel model;
  model.config = io::load_model_config(model::families(), folder);
  const std::filesystem::path path(folder);
  if (std::filesystem::exists(path / "model.safetensors") ||
      std::filesystem::exists(path / "model.safetensors.index.json")) {
    if (later.first != std::numeric_limits<int>::max())
      throw UsageError(folder + " holds a checkpoint: its layers are as they are");
    model.weights = std::make_unique<io::Checkpoint>(folder);
    io::check_tensor_shapes(model.config, *model.weights);
    model.compute = compute_of(io::stored_dtype(model.config, *model.weights));
  } else {
    model.weights = std::make_unique<RandomWeights>(model.config, later);
  }
  return model;
}

BenchModel first_layers(ModelConfig config, int layers) {
  config.layers = layers;
  return {config, std::make_unique<RandomWeights>(config), DType::bf16};
}

}  // namespace paceline::bench
