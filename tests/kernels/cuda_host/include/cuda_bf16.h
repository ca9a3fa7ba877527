// bf16 on the host: the part of CUDA's header that paceline's kernels use.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda_runtime.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};
struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(const __nv_bfloat16_raw& raw) : bits(raw.x) {}
  operator __nv_bfloat16_raw() const { return {bits}; }
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return __nv_bfloat16(__nv_bfloat16_raw{bits});
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}
/// Nearest even; NaN becomes 0x7FFF, as on the device.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return __ushort_as_bfloat16(0x7FFF);
  return __ushort_as_bfloat16(
      static_cast<unsigned short>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16));
}
inline __nv_bfloat16 __float2bfloat16(float x) { return __float2bfloat16_rn(x); }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
/// x in the lower half.
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return __floats2bfloat162_rn(a.x, a.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 a) {
  return {__bfloat162float(a.x), __bfloat162float(a.y)};
}
inline float __low2float(__nv_bfloat162 a) { return __bfloat162float(a.x); }
inline float __high2float(__nv_bfloat162 a) { return __bfloat162float(a.y); }
