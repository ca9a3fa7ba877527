// The tile unit (AMX) in software, as its instructions are documented, so that kernels written for
// it can be tested on machines without one (PACELINE_TILES_IN_SOFTWARE). Only tests use it.
//
// Like the unit, it ends the program at operands that do not fit, and accesses memory only for the
// rows that are configured.
#pragma once

#include <immintrin.h>

#include <cstddef>

#include "kernels/cpu/simd.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

/// The tiles of a thread and their configuration.
struct alignas(64) SoftwareTiles {
  std::uint8_t bytes[8][16][64];
  std::uint16_t row_bytes[8];
  std::uint8_t rows[8];
};
/// Defined in gemm_amx.cpp, like configured_tiles.
extern thread_local SoftwareTiles software_tiles;

PACELINE_INLINE void require_operand(bool fits) {
  if (!fits) __builtin_trap();
}

/// `config`: the operand of LDTILECFG.
template <typename Config>
PACELINE_INLINE void software_configure(const Config& config) {
  require_operand(config.palette == 1 && config.start_row == 0);
  SoftwareTiles& unit = software_tiles;
  __builtin_memset(&unit, 0, sizeof unit);
  for (int t = 0; t < 8; ++t) {
    require_operand(config.rows[t] <= 16 && config.row_bytes[t] <= 64);
    unit.rows[t] = config.rows[t];
    unit.row_bytes[t] = config.row_bytes[t];
  }
}

PACELINE_INLINE void software_zero(int tile) {
  require_operand(software_tiles.rows[tile] > 0);
  __builtin_memset(software_tiles.bytes[tile], 0, sizeof software_tiles.bytes[tile]);
}

PACELINE_INLINE void software_load(int tile, const void* from, std::ptrdiff_t stride) {
  SoftwareTiles& unit = software_tiles;
  software_zero(tile);
  for (int row = 0; row < unit.rows[tile]; ++row) {
    __builtin_memcpy(unit.bytes[tile][row], static_cast<const char*>(from) + row * stride,
                     unit.row_bytes[tile]);
  }
}

PACELINE_INLINE void software_store(int tile, void* to, std::ptrdiff_t stride) {
  const SoftwareTiles& unit = software_tiles;
  require_operand(unit.rows[tile] > 0);
  for (int row = 0; row < unit.rows[tile]; ++row) {
    __builtin_memcpy(static_cast<char*>(to) + row * stride, unit.bytes[tile][row],
                     unit.row_bytes[tile]);
  }
}

/// TDPBF16PS: even and odd elements of K form two chains of fused multiply-adds, whose sum is added
/// to the output. Subnormals count as zero and results are rounded to nearest: the caller has set
/// MXCSR for this. Not inlined, so that the compiler moves no arithmetic out of the section with
/// this mode.
[[gnu::noinline]] static void software_products(SoftwareTiles& unit, int out, int rows,
                                                int weights) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  for (int m = 0; m < unit.rows[out]; ++m) {
    __m512 even = _mm512_setzero_ps();
    __m512 odd = _mm512_setzero_ps();
    for (int k = 0; k < unit.row_bytes[rows] / 4; ++k) {
      std::uint32_t pair = 0;
      __builtin_memcpy(&pair, unit.bytes[rows][m] + 4 * k, sizeof pair);
      const __m512i weight = _mm512_load_si512(unit.bytes[weights][k]);
      even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(pair << 16))),
                             _mm512_castsi512_ps(_mm512_slli_epi32(weight, 16)), even);
      odd = _mm512_fmadd_ps(
          _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(pair & 0xFFFF0000U))),
          _mm512_castsi512_ps(_mm512_and_si512(weight, upper)), odd);
    }
    const __m512 sum = _mm512_add_ps(_mm512_load_ps(unit.bytes[out][m]), _mm512_add_ps(even, odd));
    const __mmask16 columns = static_cast<__mmask16>((1U << (unit.row_bytes[out] / 4)) - 1);
    _mm512_mask_store_ps(unit.bytes[out][m], columns, sum);
  }
}

PACELINE_INLINE void software_multiply(int out, int rows, int weights) {
  SoftwareTiles& unit = software_tiles;
  require_operand(unit.rows[out] > 0 && unit.rows[out] == unit.rows[rows] &&
                  unit.row_bytes[out] == unit.row_bytes[weights] &&
                  unit.row_bytes[rows] == 4 * unit.rows[weights]);
  std::uint32_t before = 0;
  asm volatile("stmxcsr %0" : "=m"(before));
  constexpr std::uint32_t kToNearestWithoutSubnormals = 0x9FC0;
  asm volatile("ldmxcsr %0" : : "m"(kToNearestWithoutSubnormals) : "memory");
  software_products(unit, out, rows, weights);
  asm volatile("ldmxcsr %0" : : "m"(before) : "memory");
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA

// The compiler's names of the instructions, which are macros in its headers too.
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_zero(tile) software_zero(tile)
#define _tile_loadd(tile, from, stride) software_load(tile, from, stride)
#define _tile_stored(tile, to, stride) software_store(tile, to, stride)
#define _tile_dpbf16ps(out, rows, weights) software_multiply(out, rows, weights)
