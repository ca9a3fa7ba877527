// bf16 as bits, for code outside the kernels proper.
#pragma once

#include <bit>
#include <cstdint>

namespace paceline::kernels::cpu {

[[nodiscard]] inline float bf16_to_float(std::uint16_t x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}

/// Rounds to nearest even; NaN becomes a quiet NaN.
[[nodiscard]] inline std::uint16_t float_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return 0x7FC0;
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

}  // namespace paceline::kernels::cpu
