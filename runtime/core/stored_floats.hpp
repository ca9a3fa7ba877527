// Storage types of weights: IEEE half precision (DType::f16), and fp8 of the kind e4m3 (DType::f8),
// whose weights are scaled by blocks.
#pragma once

#include <bit>
#include <cstdint>

namespace paceline {

/// Converts exactly: fp32 holds every value of fp16.
[[nodiscard]] inline float f16_to_float(std::uint16_t x) {
  const std::uint32_t sign = (x & 0x8000U) << 16;
  const std::uint32_t magnitude = (x & 0x7FFFU) << 13;
  if (magnitude >= 0x7C00U << 13)  // infinite or NaN
    return std::bit_cast<float>(sign | 0x7F800000U | magnitude);
  // The exponent's bias is 112 less than fp32's, for subnormal numbers too.
  const float value = std::bit_cast<float>(magnitude) * 0x1p112F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

/// Rows, and columns, of a block of a matrix with one scale. Blocks at the edges are partial.
inline constexpr std::int64_t kScaleBlock = 128;

/// Converts exactly: 1 bit of sign, 4 of exponent with bias 7, 3 of mantissa. There are no
/// infinities, and NaN is 0x7F or 0xFF.
[[nodiscard]] inline float f8_to_float(std::uint8_t x) {
  const std::uint32_t sign = (x & 0x80U) << 24;
  const std::uint32_t magnitude = (x & 0x7FU) << 20;
  // The exponent's bias is 120 less than fp32's, for subnormal numbers too.
  const float value = std::bit_cast<float>(magnitude) * 0x1p120F;
  const std::uint32_t bits =
      magnitude == 0x7FU << 20 ? 0x7FC00000U : std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>(sign | bits);
}

/// The weight of a code in a block with this scale: the product of both in fp32, rounded to bf16
/// (nearest, ties to even). NaN or infinite if the product is.
[[nodiscard]] inline float f8_weight(std::uint8_t code, float scale) {
  const auto product = std::bit_cast<std::uint32_t>(f8_to_float(code) * scale);
  const std::uint32_t rounded = (product + 0x7FFFU + (product >> 16 & 1U)) & 0xFFFF0000U;
  const bool nan = (product & 0x7FFFFFFFU) > 0x7F800000U;
  return std::bit_cast<float>(nan ? 0x7FC00000U : rounded);
}

}  // namespace paceline
