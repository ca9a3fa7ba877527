// The softmax of a tile, from scores to weights. It hides positions that a row may not see, and
// continues the online softmax of earlier tiles.
#pragma once

#include "kernels/cpu/attention_positions.hpp"
#include "kernels/cpu/simd_math.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

#if defined(PACELINE_SIMD_BF16)
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
#endif

/// Arithmetic of attention's products.
enum class Way {
  singles,  ///< fp32 by fused multiply-adds
  widened,  ///< bf16 by fused multiply-adds, K and V widened in registers
  dots,     ///< bf16 by the vector units' dot product of bf16 pairs
  tiles,    ///< bf16 by the tile unit
};

/// Whether queries and weights are pairs of bf16, as K and V are. Queries are bf16 already, so
/// scores lose nothing; scores are then scaled after the product.
template <Way way>
inline constexpr bool kPaired = way == Way::dots || way == Way::tiles;
template <Way way>
inline constexpr bool kBf16 = way != Way::singles;

/// Leaves the scores of row head r for the tile's first visible[r] positions; all others become
/// -infinity, whatever they were. Groups that were not computed hold old values, which never count.
PACELINE_INLINE void hide(float* scores, int rows, const int* visible) {
  const F32 none = set1(-__builtin_inff());
  for (int r = 0; r < rows; ++r) {
    if (visible[r] >= kTile) continue;
    float* s = scores + r * kTile;
    PACELINE_UNROLL for (int g = 0; g < kGroups; ++g) {
      const int lanes = visible[r] - g * kLanes > 0 ? visible[r] - g * kLanes : 0;
      const Mask seen = less_int(lane_ids(), set1(static_cast<std::uint32_t>(lanes)));
      store(s + g * kLanes, select(seen, load(s + g * kLanes), none));
    }
  }
}

/// The softmax step of a row tile of MR rows. `scores`: [MR][kTile], replaced by weights: fp32, or
/// kTile bf16 at the beginning of each row. `scale`: factor of scores that are not scaled yet.
/// `max_so_far`, `total`: [MR] states of the row heads side by side, one in each lane (a load of
/// whole vectors soon after stores of single lanes would stall). `alpha`: [kLanes] factors of the
/// earlier accumulators.
///
/// Paired weights are summed after rounding, so that an output is still a weighted mean of values.
///
/// On the tile unit the step also prefetches, row by row.
template <Way way, int MR>
void softmax_step(float* scores, float scale, float* max_so_far, float* total, float* alpha,
                  Fetch& fetch) {
  static_assert(MR <= kLanes);
  F32 rows[MR];
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    const float* s = scores + r * kTile;
    rows[r] = max(max(load(s), load(s + kLanes)), max(load(s + 2 * kLanes), load(s + 3 * kLanes)));
  }
  const F32 before = load_part(max_so_far, MR);
  F32 largest = max_lanes(rows);
  if constexpr (kPaired<way>) largest = largest * set1(scale);
  const F32 top = max(largest, before);
  const F32 keep = exp(before - top);
  float tops[kLanes];
  store(tops, top);
  store_part(max_so_far, top, MR);
  store(alpha, keep);
  // Due lines are counted by addition: a multiplication for each row would cost measurable time.
  [[maybe_unused]] const int lines = fetch.softmax_lines;  // lines of all MR rows together
  [[maybe_unused]] int due = 0;                            // number of due lines, times MR
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    float* s = scores + r * kTile;
    if constexpr (way == Way::tiles) {
      for (due += lines; due >= MR; due -= MR) {
#pragma GCC unroll 1
        for (int g = 0; g < kGroups; ++g) {
          fetch_line(fetch.values[g]);
          fetch_line(fetch.keys[g]);
        }
      }
    }
    F32 w[kGroups];
    if constexpr (kPaired<way>) {
#if defined(PACELINE_SIMD_BF16)
      // Not fused: the largest score minus the maximum must be exactly 0, however large it is.
      PACELINE_UNROLL for (int g = 0; g < kGroups; ++g) {
        w[g] = exp_for_bf16(load(s + g * kLanes) * set1(scale) - set1(tops[r]));
      }
      PACELINE_UNROLL for (int g = 0; g < kGroups; g += 2) {
        const U32 pairs = to_pairs(w[g], w[g + 1]);
        store(reinterpret_cast<std::uint32_t*>(s) + g * kLanes / 2, pairs);
        w[g] = first_of(pairs);
        w[g + 1] = second_of(pairs);
      }
#endif
    } else {
      PACELINE_UNROLL for (int g = 0; g < kGroups; ++g) {
        w[g] = exp(load(s + g * kLanes) - set1(tops[r]));
        store(s + g * kLanes, w[g]);
      }
    }
    rows[r] = (w[0] + w[1]) + (w[2] + w[3]);
  }
  store_part(total, load_part(total, MR) * keep + sums(rows), MR);
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
