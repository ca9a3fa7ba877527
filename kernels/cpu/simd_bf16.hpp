// Conversions of sixteen lanes, or a part of them, between fp32 in registers and bf16 in memory.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

/// Rounds fp32 to bf16, in the low half of each lane: to nearest even, NaN to a quiet NaN,
/// subnormals kept.
PACELINE_INLINE U32 to_bf16(F32 a) {
  const U32 bits = as_bits(a);
  const U32 odd = shift_right<16>(bits) & set1(1U);
  const U32 rounded = shift_right<16>(bits + set1(0x7FFFU) + odd);
  return select(is_nan(a), set1(0x7FC0U), rounded);
}
PACELINE_INLINE void store_bf16(std::uint16_t* p, F32 x) { store_low16(p, to_bf16(x)); }
PACELINE_INLINE void store_bf16_part(std::uint16_t* p, F32 x, int n) {
  std::uint16_t lanes[kLanes];
  store_bf16(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
PACELINE_INLINE F32 load_bf16_part(const std::uint16_t* p, int n) {
  std::uint16_t lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load_bf16(lanes);
}
/// Stores lanes [0, n) at element `index` of an fp32 or bf16 array.
PACELINE_INLINE void store_as(std::byte* out, std::ptrdiff_t index, F32 x, int n, bool bf16) {
  if (bf16) {
    auto* p = reinterpret_cast<std::uint16_t*>(out) + index;
    if (n == kLanes) {
      store_bf16(p, x);
    } else {
      store_bf16_part(p, x, n);
    }
  } else {
    auto* p = reinterpret_cast<float*>(out) + index;
    if (n == kLanes) {
      store(p, x);
    } else {
      store_part(p, x, n);
    }
  }
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
