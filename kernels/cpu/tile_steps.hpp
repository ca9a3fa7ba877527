// Steps of row tiles through panels of weights on the tile unit, and the work between them:
// prefetching of the next weights, and gating.
//
// A step's 16 x 32 weights (transposed, in pairs) are 16 cache lines of a packed panel.
#pragma once

#include "kernels/cpu/amx.hpp"
#include "kernels/cpu/gating.hpp"
#include "kernels/cpu/kernel_table.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

inline constexpr int kStep = 32;                                          // elements of K
inline constexpr std::ptrdiff_t kPanelRowBytes = kPanelWidth * 4;         // a pair of K
inline constexpr std::ptrdiff_t kPanelStep = kStep / 2 * kPanelRowBytes;  // bytes of a panel
/// Bytes by which prefetching is ahead: 768 past the touched lines. 512 are as good; with 2,048 a
/// product of 1 to 16 rows takes a sixth longer (measured).
inline constexpr std::ptrdiff_t kPrefetchDistance = kPanelStep + 768;
// The slack covers the rest of a last step, which is read, and the step after it, which is touched.
static_assert(2 * kPanelStep <= kPanelSlack);
/// Number of places, equally far apart, at which the next operand is prefetched alternately. The
/// hardware prefetches up to 20 lines ahead in each page that is read, and 20 are too few to keep
/// memory busy. With four places a product of 64 rows takes a fifth less time than with one; eight
/// are no better than four (measured).
inline constexpr int kPlaces = 4;
inline constexpr int kPlaceLines = static_cast<int>(kPanelStep / 64 / kPlaces);  // for each step
static_assert(kPanelStep / 64 % kPlaces == 0);

/// Operands of a block of one or two row tiles with one panel, or of one row tile with two panels.
struct Work {
  const std::byte* rows[2];      ///< first row of the next step, by row tile
  std::ptrdiff_t row_bytes[2];   ///< from one row to the next, by row tile
  std::ptrdiff_t step_bytes[2];  ///< from one step to the next, by row tile
  const std::byte* weight[2];    ///< weights of the next step, by panel
  const std::byte* ahead;        ///< line to prefetch next, at the first place
  std::ptrdiff_t ahead_place;    ///< bytes from place to place
  int ahead_lines;               ///< lines to prefetch in each step, at each place
};

/// Prefetches a step's share of the next operand.
PACELINE_INLINE void prefetch_next(Work& work) {
  for (int i = 0; i < work.ahead_lines; ++i, work.ahead += 64) {
    PACELINE_UNROLL for (int place = 0; place < kPlaces; ++place) {
      _mm_prefetch(reinterpret_cast<const char*>(work.ahead + place * work.ahead_place),
                   _MM_HINT_T1);
    }
  }
}

/// Half a step of a panel that is streamed from memory: touches half of the next step with ordinary
/// loads and prefetches the lines after it. Tile loads alone, even of prefetched lines, reach 15 of
/// the 19 GB/s that a core reads with ordinary loads; with this they reach 18. The loop must not be
/// unrolled: the first-level prefetcher follows a single load instruction, and with sixteen of them
/// 15 GB/s are reached (measured).
PACELINE_INLINE void touch_ahead(const std::byte* p) {
#pragma GCC unroll 1
  for (std::ptrdiff_t i = 0; i < kPanelStep / 2; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchDistance + i), _MM_HINT_T0);
    asm volatile("movl %0, %%eax" : : "m"(p[kPanelStep + i]) : "eax");
  }
}

/// Takes one row tile through one or two panels, or two row tiles through one panel. Output tile n:
/// [row tile][vector], or vector n of both panels.
template <int tiles, int panels, bool gated>
PACELINE_INLINE void run_steps(Work& work, int steps, bool streamed, Gating* gating) {
  static_assert(tiles == 1 || panels == 1);
  for (int s = 0; s < steps; ++s) {
    if constexpr (gated) gate_rows(*gating, gating->at_once);
    if (!streamed) prefetch_next(work);
    _tile_loadd(4, work.rows[0], work.row_bytes[0]);
    if (streamed) touch_ahead(work.weight[0]);
    _tile_loadd(6, work.weight[0], kPanelRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    if (streamed) touch_ahead(work.weight[0] + kPanelStep / 2);
    _tile_loadd(7, work.weight[0] + kRowBytes, kPanelRowBytes);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (panels == 2) {
      if (streamed) touch_ahead(work.weight[1]);
      _tile_loadd(6, work.weight[1], kPanelRowBytes);
      _tile_dpbf16ps(2, 4, 6);
      if (streamed) touch_ahead(work.weight[1] + kPanelStep / 2);
      _tile_loadd(7, work.weight[1] + kRowBytes, kPanelRowBytes);
      _tile_dpbf16ps(3, 4, 7);
      work.weight[1] += kPanelStep;
    }
    if constexpr (tiles == 2) {
      _tile_loadd(5, work.rows[1], work.row_bytes[1]);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      work.rows[1] += work.step_bytes[1];
    }
    work.rows[0] += work.step_bytes[0];
    work.weight[0] += kPanelStep;
  }
}

PACELINE_INLINE void clear_tiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
