// e^x, ln x and the noise of tokens in IEEE operations of a fixed order, so that their bits do not
// depend on a mathematical library. The CPU backend's vector code has the same polynomials.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/core/sampling.hpp"

namespace paceline::kernels::cuda {

/// e^x within 2 ulp for x in [-87.3, 88.3]; exactly 1 at 0; exactly 0 below -87.3; saturates above;
/// NaN stays NaN.
__device__ __forceinline__ float exponential(float x) {
  const float bounded = x < -87.3F ? -87.3F : x > 88.3F ? 88.3F : x;
  // x = n ln 2 + r, |r| <= ln 2 / 2, where ln 2 has two parts so that r is nearly exact. Adding 1.5
  // * 2^23 rounds to the nearest integer, which is then the lower bits.
  const float shifted = __fadd_rn(__fmul_rn(bounded, 1.44269504F), 12582912.0F);
  const float n = __fsub_rn(shifted, 12582912.0F);
  float r = __fmaf_rn(n, -0.693145752F, bounded);
  r = __fmaf_rn(n, -1.42860682e-6F, r);
  // The Taylor series is summed up to r^7 / 7!; the next term is below 6e-9.
  float p = 1.0F / 5040.0F;
  p = __fmaf_rn(p, r, 1.0F / 720.0F);
  p = __fmaf_rn(p, r, 1.0F / 120.0F);
  p = __fmaf_rn(p, r, 1.0F / 24.0F);
  p = __fmaf_rn(p, r, 1.0F / 6.0F);
  p = __fmaf_rn(p, r, 0.5F);
  p = __fmaf_rn(p, r, 1.0F);
  p = __fmaf_rn(p, r, 1.0F);
  const float scale = __uint_as_float((__float_as_uint(shifted) + 127U) << 23);
  return x < -87.3F ? 0.0F : __fmul_rn(p, scale);
}

/// Returns silu(gate) * up.
__device__ __forceinline__ float swiglu_value(float gate, float up) {
  return __fdiv_rn(gate, 1.0F + exponential(-gate)) * up;
}

/// n ln 2 + ln(1 + f) for f in [-0.5, 1/3]: 2 atanh(z) with z = f / (2 + f), |z| <= 1/3. The series
/// in z^2 keeps relative precision when f goes to 0.
__device__ __forceinline__ float log_reduced(float n, float f) {
  const float z = __fdiv_rn(f, __fadd_rn(2.0F, f));
  const float z2 = __fmul_rn(z, z);
  float p = 2.0F / 17.0F;
  p = __fmaf_rn(p, z2, 2.0F / 15.0F);
  p = __fmaf_rn(p, z2, 2.0F / 13.0F);
  p = __fmaf_rn(p, z2, 2.0F / 11.0F);
  p = __fmaf_rn(p, z2, 2.0F / 9.0F);
  p = __fmaf_rn(p, z2, 2.0F / 7.0F);
  p = __fmaf_rn(p, z2, 2.0F / 5.0F);
  p = __fmaf_rn(p, z2, 2.0F / 3.0F);
  p = __fmaf_rn(__fmul_rn(p, z2), z, __fadd_rn(z, z));
  p = __fmaf_rn(n, 1.42860682e-6F, p);
  return __fmaf_rn(n, 0.693145752F, p);
}

/// x = 2^n (1 + f) with 1 + f in [2/3, 4/3), for normal positive x.
__device__ __forceinline__ void split_exponent(float x, float& n, float& f) {
  const int exponent = static_cast<int>(__float_as_uint(x) - 0x3F2AAAABU) >> 23;
  n = static_cast<float>(exponent);
  f = __fsub_rn(__uint_as_float(__float_as_uint(x) - (static_cast<unsigned>(exponent) << 23)),
                1.0F);
}

/// Upper bound of the noise of any bits.
inline constexpr float kGumbelBound = 22.9F;

/// Gumbel noise of 32 random bits: -ln(-ln w), w = (bits + 0.5) / 2^32. Above one half, the
/// complement 1 - w is computed exactly from the bits, so that both tails keep their precision.
__device__ __forceinline__ float gumbel(std::uint32_t bits) {
  const bool upper = (bits & 0x80000000U) != 0;
  const std::uint32_t below = upper ? ~bits : bits;
  const float high = __fmul_rn(static_cast<float>(below >> 16), 65536.0F);
  const float low = __fadd_rn(static_cast<float>(below & 0xFFFFU), 0.5F);
  const float x = __fmul_rn(__fadd_rn(high, low), 2.3283064365386963e-10F);
  float n;
  float f;
  split_exponent(x, n, f);
  const float e = -log_reduced(upper ? 0.0F : n, upper ? -x : f);
  split_exponent(e, n, f);
  return -log_reduced(n, f);
}

/// Lower bound of the bits whose noise can reach `needed`: -ln(-ln w) >= d requires w >=
/// exp(-e^-d), which is at least 1 - e^-d. The margin covers the rounding of the noise and of
/// scores about `score`.
__device__ __forceinline__ std::uint32_t least_bits(float needed, float score) {
  const float margin = 1e-3F + 1e-6F * (fabsf(score) + fabsf(needed));
  const float complement = exponential(margin - needed) * 1.001F * 4294967296.0F;
  return complement < 4294900000.0F ? 0xFFFFFFFFU - static_cast<std::uint32_t>(complement) : 0U;
}

/// Philox4x32-10 as in runtime/core/philox.hpp: the four words of counter (count, step, stream).
__device__ __forceinline__ uint4 noise_words(const NoiseKey& noise, std::uint32_t step,
                                             std::uint32_t count) {
  uint4 c = make_uint4(count, step, static_cast<std::uint32_t>(noise.stream),
                       static_cast<std::uint32_t>(noise.stream >> 32));
  auto key0 = static_cast<std::uint32_t>(noise.key);
  auto key1 = static_cast<std::uint32_t>(noise.key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    c = make_uint4(__umulhi(0xCD9E8D57U, c.z) ^ c.y ^ key0, 0xCD9E8D57U * c.z,
                   __umulhi(0xD2511F53U, c.x) ^ c.w ^ key1, 0xD2511F53U * c.x);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return c;
}

}  // namespace paceline::kernels::cuda
