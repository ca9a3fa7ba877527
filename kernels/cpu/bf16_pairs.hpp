// Pairs of bf16 in vectors of 16 words, for instruction sets that convert to them.
#pragma once

#include "kernels/cpu/simd.hpp"

#if defined(PACELINE_SIMD_BF16)
namespace paceline::kernels::cpu::PACELINE_ISA {

/// Rounds 32 values to the nearest bf16, in order; subnormals become zero.
PACELINE_INLINE U32 to_pairs(F32 low, F32 high) {
  return {(__m512i)_mm512_cvtne2ps_pbh(high.v, low.v)};
}
/// The earlier elements of pairs, and the later ones.
PACELINE_INLINE F32 first_of(U32 pairs) { return as_float(shift_left<16>(pairs)); }
PACELINE_INLINE F32 second_of(U32 pairs) { return as_float(pairs & set1(0xFFFF0000U)); }

/// e^x for x <= 0, to be rounded to bf16: its error is a tenth of the rounding error, at half the
/// cost of exp(). Below -87.4 results are subnormal, which the conversion to bf16 makes 0; NaN
/// stays NaN.
PACELINE_INLINE F32 exp_for_bf16(F32 x) {
  // e^x = 2^n 2^f with |f| <= 1/2. The bound keeps n finite where x is -infinity.
  const F32 y = max(set1(-128.0F), x * set1(1.44269504F));
  const F32 n = {_mm512_roundscale_ps(y.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  const F32 f = y - n;
  // Minimax polynomial of 2^f, exactly 1 at 0; relative error 1.01e-4.
  F32 p = set1(0.0550088F);
  p = fma(p, f, set1(0.2422112F));
  p = fma(p, f, set1(0.6932830F));
  p = fma(p, f, set1(1.0F));
  return {_mm512_scalef_ps(p.v, n.v)};
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
#endif
