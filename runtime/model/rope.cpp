#include "runtime/model/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace paceline::model {
namespace {

// Each value is double or float as in transformers, so that the frequencies are the same.

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

/// Positions in which pair i of the plain embedding turns by one radian.
float period(const ModelConfig& config, std::size_t i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.rope_dim());
  return std::pow(static_cast<float>(config.rope_theta), exponent);
}

/// The (fractional) index of the pair that turns `turns` times within the original context.
double yarn_bound(const ModelConfig& config, const YarnRopeScaling& s, double turns) {
  return config.rope_dim() * std::log(s.original_max_position / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(config.rope_theta));
}

void scale_yarn(const ModelConfig& config, const YarnRopeScaling& s, std::vector<float>& all) {
  double low = yarn_bound(config, s, s.beta_fast);
  double high = yarn_bound(config, s, s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(config.rope_dim() - 1));
  if (low == high) high += 0.001;  // avoids a division by zero
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float ramp =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0F - std::clamp(ramp, 0.0F, 1.0F);
    const float divided = 1.0F / (static_cast<float>(s.factor) * period(config, i));
    all[i] = divided * (1.0F - kept) + all[i] * kept;
  }
}

std::vector<float> frequencies(const ModelConfig& config) {
  std::vector<float> all(config.rope_dim() / 2);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = 1.0F / period(config, i);
  if (const auto* linear = std::get_if<LinearRopeScaling>(&config.rope_scaling)) {
    for (float& frequency : all) frequency /= static_cast<float>(linear->factor);
  } else if (const auto* llama3 = std::get_if<Llama3RopeScaling>(&config.rope_scaling)) {
    for (float& frequency : all) frequency = scale_llama3(frequency, *llama3);
  } else if (const auto* yarn = std::get_if<YarnRopeScaling>(&config.rope_scaling)) {
    scale_yarn(config, *yarn, all);
  }
  return all;
}

}  // namespace

std::vector<float> rope_table(const ModelConfig& config, int max_position) {
  const int half = config.rope_dim() / 2;
  const std::vector<float> frequency = frequencies(config);
  const auto* yarn = std::get_if<YarnRopeScaling>(&config.rope_scaling);
  const float attention = yarn == nullptr ? 1.0F : static_cast<float>(yarn->attention_factor);
  std::vector<float> table(static_cast<std::size_t>(max_position) * config.rope_dim());
  for (int position = 0; position < max_position; ++position) {
    float* row = table.data() + static_cast<std::size_t>(position) * config.rope_dim();
    for (int i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * frequency[i];
      row[i] = static_cast<float>(std::cos(static_cast<double>(angle))) * attention;
      row[half + i] = static_cast<float>(std::sin(static_cast<double>(angle))) * attention;
    }
  }
  return table;
}

}  // namespace paceline::model
