#include "runtime/model/rope.hpp"

#include <cmath>
#include <numbers>

namespace paceline::model {
namespace {

// Llama 3.1: wavelengths past the original context are stretched by `factor`, short ones are kept,
// and those between are blended.
float scale_llama3(float frequency, const Llama3RopeScaling& s) {
  const float wavelength = 2.0F * std::numbers::pi_v<float> / frequency;
  const float low = static_cast<float>(s.original_max_position) / s.low_freq_factor;
  const float high = static_cast<float>(s.original_max_position) / s.high_freq_factor;
  if (wavelength > low) return frequency / s.factor;
  if (wavelength < high) return frequency;
  const float smooth =
      (static_cast<float>(s.original_max_position) / wavelength - s.low_freq_factor) /
      (s.high_freq_factor - s.low_freq_factor);
  return (1.0F - smooth) * frequency / s.factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_table(const ModelConfig& config, int max_position) {
  const int half = config.head_dim / 2;
  std::vector<float> frequency(half);
  for (int i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    frequency[i] = 1.0F / std::pow(static_cast<float>(config.rope_theta), exponent);
    if (config.rope_scaling) frequency[i] = scale_llama3(frequency[i], *config.rope_scaling);
  }
  std::vector<float> table(static_cast<std::size_t>(max_position) * config.head_dim);
  for (int position = 0; position < max_position; ++position) {
    float* row = table.data() + static_cast<std::size_t>(position) * config.head_dim;
    for (int i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * frequency[i];
      row[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      row[half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  return table;
}

}  // namespace paceline::model
