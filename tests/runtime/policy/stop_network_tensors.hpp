// The weights of a stop network, random, for tests.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/weight_source.hpp"
#include "runtime/policy/length/draft_stop.hpp"

namespace paceline::policy {

/// Tensors under names, of random values as PyTorch begins with.
class StopNetworkTensors final : public WeightSource {
 public:
  StopNetworkTensors() {
    constexpr int kHidden = StopNetwork::kHidden;
    constexpr int kStates = StopNetwork::kStates;
    put("lstm.weight_ih_l0", {4 * kHidden, kStates});
    put("lstm.weight_hh_l0", {4 * kHidden, kHidden});
    put("lstm.bias_ih_l0", {4 * kHidden});
    put("lstm.bias_hh_l0", {4 * kHidden});
    put("mlp.0.weight", {kHidden, kHidden + kStates});
    put("mlp.0.bias", {kHidden});
    put("mlp.3.weight", {2, kHidden});
    put("mlp.3.bias", {2});
  }
  void put(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    std::vector<float>& values = values_[name];
    values.clear();
    std::uniform_real_distribution<float> uniform(-0.3F, 0.3F);
    for (std::int64_t i = 0; i < count; ++i) values.push_back(uniform(random_));
    views_[name] = {DType::f32, shape, std::as_bytes(std::span(values))};
  }
  void drop(const std::string& name) { views_.erase(name); }
  [[nodiscard]] TensorView& view(const std::string& name) { return views_.at(name); }
  [[nodiscard]] std::vector<float>& values(const std::string& name) { return values_.at(name); }
  [[nodiscard]] double at(const std::string& name, int row, int column) const {
    return values_.at(name)[row * views_.at(name).shape[1] + column];
  }
  [[nodiscard]] double at(const std::string& name, int i) const { return values_.at(name)[i]; }

  const TensorView* find(std::string_view name) const override {
    const auto found = views_.find(std::string(name));
    return found == views_.end() ? nullptr : &found->second;
  }
  std::vector<std::string_view> names() const override { return {}; }
  std::string location(std::string_view) const override { return "radar.safetensors"; }
  void release_pages() const override {}

 private:
  std::mt19937 random_{7};
  std::map<std::string, std::vector<float>> values_;
  std::map<std::string, TensorView> views_;
};

}  // namespace paceline::policy
