// IEEE half precision (DType::f16), a storage type of weights.
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

}  // namespace paceline
