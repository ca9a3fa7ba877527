// Random weights of any configuration in memory, for tests of shapes that no checkpoint has.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/weight_source.hpp"
#include "runtime/model/families/families.hpp"

namespace paceline::test {

/// A decoder with grouped heads and biases, as small as tests of passes want it.
inline ModelConfig small_config(int layers, int max_position) {
  ModelConfig config;
  config.family = &model::qwen2;
  config.vocab = 80;
  config.hidden = 48;
  config.intermediate = 64;
  config.layers = layers;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.max_position = max_position;
  config.attention_bias = true;
  return config;
}

/// Gives a model of a family with experts some of them, a few for each row, beside a dense layer
/// where the family can have one.
inline void add_experts(ModelConfig& config) {
  if (config.family->experts == ExpertKeys::none) return;
  ExpertConfig experts{.routed = 6, .chosen = 2, .width = 40, .dense_layers = {}};
  if (config.family->experts == ExpertKeys::qwen2) experts.shared_width = 56;
  if (config.family->experts == ExpertKeys::deepseek) {
    experts.shared_width = 80;
    experts.sigmoid = experts.corrected = true;
  }
  if (config.family->experts == ExpertKeys::mixtral) {
    experts.width = config.intermediate;
  } else {
    experts.dense_layers = {1};
  }
  experts.normalised = config.family->experts != ExpertKeys::qwen2;
  config.experts = experts;
}

/// fp32 tensors of unit gain: those of a matrix have a spread of 1 / sqrt(columns), norms are about
/// one, biases about zero.
class RandomModel final : public WeightSource {
 public:
  explicit RandomModel(const ModelConfig& config)
      : RandomModel(expected_tensors(describe(config))) {}
  explicit RandomModel(const std::vector<ExpectedTensor>& tensors) {
    std::mt19937 engine(5);
    std::normal_distribution<float> normal;
    for (const ExpectedTensor& tensor : tensors) {
      std::size_t size = 1;
      for (const std::int64_t n : tensor.shape) size *= static_cast<std::size_t>(n);
      std::vector<float>& values = values_[tensor.name];
      values.resize(size);
      const bool norm = tensor.name.find("norm") != std::string::npos;
      const float spread =
          tensor.shape.size() == 2 && tensor.name.find("embed") == std::string::npos
              ? 1 / std::sqrt(static_cast<float>(tensor.shape[1]))
              : 0.5F;
      for (float& x : values) x = norm ? 1 + 0.1F * normal(engine) : spread * normal(engine);
      views_[tensor.name] = {DType::f32, tensor.shape, std::as_bytes(std::span(values))};
    }
  }
  [[nodiscard]] std::vector<float>& values(const std::string& name) { return values_.at(name); }
  [[nodiscard]] const std::vector<float>& values(const std::string& name) const {
    return values_.at(name);
  }

  [[nodiscard]] const TensorView* find(std::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::vector<std::string_view> names() const override {
    std::vector<std::string_view> all;
    for (const auto& [name, view] : views_) all.push_back(name);
    return all;
  }
  [[nodiscard]] std::string location(std::string_view) const override { return "random.file"; }
  void release_pages() const override {}

 private:
  std::map<std::string, std::vector<float>, std::less<>> values_;
  std::map<std::string, TensorView, std::less<>> views_;
};

}  // namespace paceline::test
