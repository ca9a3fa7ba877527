// exp, log and the Gumbel transform on sixteen lanes. They are written out rather than taken from a
// vector library because their bits are part of the product: the same polynomial, in the same
// order, on every instruction set.
#pragma once

#include "kernels/cpu/simd.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

/// exp() of x <= 88.3, or NaN.
PACELINE_INLINE F32 exp_below(F32 x) {
  // x = n ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts so that r is nearly exact. A NaN stays
  // NaN in r; its n is arbitrary.
  const U32 n = to_int(x * set1(1.44269504F));
  const F32 nf = from_int(n);
  F32 r = fma(nf, set1(-0.693145752F), x);
  r = fma(nf, set1(-1.42860682e-6F), r);
  // Taylor series up to r^7 / 7!: the next term is below 6e-9.
  F32 p = set1(1.0F / 5040.0F);
  p = fma(p, r, set1(1.0F / 720.0F));
  p = fma(p, r, set1(1.0F / 120.0F));
  p = fma(p, r, set1(1.0F / 24.0F));
  p = fma(p, r, set1(1.0F / 6.0F));
  p = fma(p, r, set1(0.5F));
  p = fma(p, r, set1(1.0F));
  p = fma(p, r, set1(1.0F));
  return ldexp_where(not_less(x, set1(-87.3F)), p, n);
}

/// e^x within 2 ulp for x in [-87.3, 88.3]; exactly 1 at 0; exactly 0 below -87.3 (no subnormal
/// results); saturates above; NaN stays NaN.
PACELINE_INLINE F32 exp(F32 x) { return exp_below(min(set1(88.3F), x)); }

/// silu(gate) * up.
PACELINE_INLINE F32 gated(F32 gate, F32 up) {
  return gate / (set1(1.0F) + exp(set1(0.0F) - gate)) * up;
}

/// n ln 2 + ln(1 + f) for f in [-0.5, 1/3]: ln(1 + f) = 2 atanh(z) with z = f / (2 + f), |z| <=
/// 1/3. The series in z^2 keeps its relative precision as f goes to 0.
PACELINE_INLINE F32 log_reduced(F32 nf, F32 f) {
  const F32 z = f / (set1(2.0F) + f);
  const F32 z2 = z * z;
  F32 p = set1(2.0F / 17.0F);
  p = fma(p, z2, set1(2.0F / 15.0F));
  p = fma(p, z2, set1(2.0F / 13.0F));
  p = fma(p, z2, set1(2.0F / 11.0F));
  p = fma(p, z2, set1(2.0F / 9.0F));
  p = fma(p, z2, set1(2.0F / 7.0F));
  p = fma(p, z2, set1(2.0F / 5.0F));
  p = fma(p, z2, set1(2.0F / 3.0F));
  p = fma(p * z2, z, z + z);
  p = fma(nf, set1(1.42860682e-6F), p);
  return fma(nf, set1(0.693145752F), p);
}

/// x = 2^n (1 + f) with 1 + f in [2/3, 4/3), for normal positive x.
PACELINE_INLINE void split_exponent(F32 x, F32& nf, F32& f) {
  const U32 two_thirds = set1(0x3F2AAAABU);
  const U32 n = shift_right_signed<23>(as_bits(x) - two_thirds);
  nf = from_int(n);
  f = as_float(as_bits(x) - shift_left<23>(n)) - set1(1.0F);
}

/// ln x for normal positive x.
PACELINE_INLINE F32 log(F32 x) {
  F32 nf;
  F32 f;
  split_exponent(x, nf, f);
  return log_reduced(nf, f);
}

/// Unsigned integers plus one half, as floats: x + 0.5, rounded at most twice.
PACELINE_INLINE F32 unsigned_plus_half(U32 x) {
  const F32 high = from_int(shift_right<16>(x)) * set1(65536.0F);
  const F32 low = from_int(x & set1(0xFFFFU)) + set1(0.5F);
  return high + low;
}

/// Gumbel noise of 32 random bits: -ln(-ln w), w = (bits + 0.5) / 2^32. Above one half the bits
/// give the complement 1 - w exactly, so -ln w = -log1p(-(1 - w)) keeps its relative precision up
/// to the last value, and both tails are accurate. The result is in [-3.14, 22.88].
PACELINE_INLINE F32 gumbel(U32 bits) {
  const U32 zero = set1(0U);
  const Mask upper = less_int(bits, zero);  // w > 0.5
  const F32 unit = set1(2.3283064365386963e-10F);
  const F32 x = unsigned_plus_half(select(upper, bits ^ set1(0xFFFFFFFFU), bits)) * unit;
  F32 nf;
  F32 f;
  split_exponent(x, nf, f);
  nf = select(upper, set1(0.0F), nf);
  f = select(upper, set1(0.0F) - x, f);
  const F32 e = set1(0.0F) - log_reduced(nf, f);
  return set1(0.0F) - log(e);
}

/// Upper bound of all noise.
inline constexpr float kGumbelBound = 22.9F;

}  // namespace paceline::kernels::cpu::PACELINE_ISA
