// Operations that towers for pictures need in addition to a decoder's.
#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/cpu/bf16.hpp"
#include "kernels/cpu/for_each.hpp"
#include "kernels/cpu/operations.hpp"

namespace paceline::kernels::cpu {
namespace {

float exact_gelu(float x) {
  return 0.5F * x * (1.0F + std::erf(x * (std::numbers::sqrt2_v<float> / 2)));
}

// Computes one element after the other: it runs once a picture, on a few rows.
void store_exact(const float* in, int width, DType dtype, std::byte* out) {
  for (int i = 0; i < width; ++i) {
    const float value = exact_gelu(in[i]);
    if (dtype == DType::f32) {
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    } else {
      const std::uint16_t bits = float_to_bf16(value);
      std::memcpy(out + i * sizeof bits, &bits, sizeof bits);
    }
  }
}

}  // namespace

void CpuOperations::add_layernorm(float* x, const float* delta, const float* weight,
                                  const float* bias, float epsilon, int rows, int width,
                                  DType dtype, std::byte* out) {
  const NormArgs args = {x, delta, weight, bias, out, epsilon, width, dtype == DType::bf16};
  for_each(pool_, rows, std::int64_t{rows} * width,
           [&](int r) { kernels_.add_layernorm(args, r, r + 1); });
}

void CpuOperations::gelu(Gelu kind, const float* in, int rows, int width, DType dtype,
                         std::byte* out) {
  for_each(pool_, rows, std::int64_t{rows} * width, [&](int r) {
    const std::size_t first = static_cast<std::size_t>(r) * width;
    std::byte* const to = out + first * size_of(dtype);
    if (kind == Gelu::quick) {
      kernels_.quick_gelu(in + first, width, dtype == DType::bf16, to);
    } else {
      store_exact(in + first, width, dtype, to);
    }
  });
}

}  // namespace paceline::kernels::cpu
