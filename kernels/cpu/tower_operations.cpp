// Operations that towers for pictures need in addition to a decoder's. Their sums are formed one
// element after the other, in the same order for every instruction set.
#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/cpu/bf16.hpp"
#include "kernels/cpu/for_each.hpp"
#include "kernels/cpu/operations.hpp"

namespace paceline::kernels::cpu {
namespace {

void store(float value, std::size_t i, DType dtype, std::byte* out) {
  if (dtype == DType::f32) {
    std::memcpy(out + i * sizeof value, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = float_to_bf16(value);
  std::memcpy(out + i * sizeof bits, &bits, sizeof bits);
}

float gelu_of(Gelu kind, float x) {
  if (kind == Gelu::quick) return x / (1.0F + std::exp(-1.702F * x));
  return 0.5F * x * (1.0F + std::erf(x * (std::numbers::sqrt2_v<float> / 2)));
}

}  // namespace

void CpuOperations::add_layernorm(float* x, const float* delta, const float* weight,
                                  const float* bias, float epsilon, int rows, int width,
                                  DType dtype, std::byte* out) {
  for_each(pool_, rows, std::int64_t{rows} * width, [&](int r) {
    const std::size_t first = static_cast<std::size_t>(r) * width;
    float* const row = x + first;
    double sum = 0;
    for (int i = 0; i < width; ++i) {
      if (delta != nullptr) row[i] += delta[first + i];
      sum += row[i];
    }
    const double mean = sum / width;
    double squares = 0;
    for (int i = 0; i < width; ++i) squares += (row[i] - mean) * (row[i] - mean);
    const auto centre = static_cast<float>(mean);
    const auto scale = static_cast<float>(1 / std::sqrt(squares / width + epsilon));
    for (int i = 0; i < width; ++i)
      store((row[i] - centre) * scale * weight[i] + bias[i], first + i, dtype, out);
  });
}

void CpuOperations::gelu(Gelu kind, const float* in, int rows, int width, DType dtype,
                         std::byte* out) {
  for_each(pool_, rows, std::int64_t{rows} * width, [&](int r) {
    const std::size_t first = static_cast<std::size_t>(r) * width;
    for (std::size_t i = first; i < first + width; ++i) store(gelu_of(kind, in[i]), i, dtype, out);
  });
}

}  // namespace paceline::kernels::cpu
