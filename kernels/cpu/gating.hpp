// silu(gate) * up while the tile unit works: the gates and ups of a row block are combined row by
// row between the steps of the next block, when the vector units have little to do.
#pragma once

#include "kernels/cpu/amx.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd_bf16.hpp"
#include "kernels/cpu/simd_math.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

/// Destination of a call's outputs, and its unfinished outputs. They belong to one row block and
/// one panel.
struct Gating {
  std::byte* out;  ///< [rows][row_bytes] of bf16
  std::ptrdiff_t row_bytes;
  bool past_caches;              ///< non-temporal stores; out then begins on a cache line
  const float* gates = nullptr;  ///< [tile][vector][row][16]
  const float* ups = nullptr;    ///< [tile][vector][row][16]
  std::byte* to = nullptr;       ///< place of the first row
  int next = 0, rows = 0;        ///< the next row, and the number of rows
  int at_once = 0;               ///< rows in each step
};

/// Gates the next `count` rows, or all that are left.
PACELINE_INLINE void gate_rows(Gating& gating, int count) {
  constexpr int kVector = kTileRows * kLanes;
  const int left = gating.rows - gating.next;
  const int end = gating.next + (count < left ? count : left);
  for (; gating.next < end; ++gating.next) {
    const int at = gating.next / kTileRows * 2 * kVector + gating.next % kTileRows * kLanes;
    const float* gates = gating.gates + at;
    const float* ups = gating.ups + at;
    const U32 first = to_bf16(gated(load(gates), load(ups)));
    const U32 second = to_bf16(gated(load(gates + kVector), load(ups + kVector)));
    const __m512i line = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(first.v)),
                                            _mm512_cvtepi32_epi16(second.v), 1);
    std::byte* to = gating.to + gating.next * gating.row_bytes;
    if (gating.past_caches) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
    } else {
      _mm512_storeu_si512(to, line);
    }
  }
}

/// Begins with the outputs of a row block and a panel, to be finished within `steps` steps.
/// Completes unfinished outputs first.
PACELINE_INLINE void gate_block(Gating& gating, const float* gates, const float* ups, int first_row,
                                int rows, int panel, int steps) {
  gate_rows(gating, gating.rows);
  gating.gates = gates;
  gating.ups = ups;
  gating.to = gating.out + first_row * gating.row_bytes + std::ptrdiff_t{panel} * kPanelWidth * 2;
  gating.next = 0;
  gating.rows = rows;
  gating.at_once = (rows + steps - 1) / steps;
}

/// Gates the remaining rows, and makes all outputs visible to other threads.
PACELINE_INLINE void finish_gating(Gating& gating) {
  gate_rows(gating, gating.rows);
  if (gating.past_caches) _mm_sfence();
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
