// Configuration of the tile unit (AMX): eight tiles, each of up to 16 rows of 64 bytes.
//
// GCC's intrinsics do not tell the compiler that tile loads read memory. So operands must be
// written before the function that loads them is called, or by instructions that tell the compiler.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

inline constexpr int kTileRows = 16;
inline constexpr std::ptrdiff_t kRowBytes = 64;

/// Operand of LDTILECFG.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// Last configuration of this thread's tiles (see configure_tiles()). Loading one costs some 60 ns
/// (measured), so an equal one is not loaded again. Defined in gemm_amx.cpp.
extern constinit thread_local int configured_tiles;

/// Gives tiles 0, 1 and 4 `first` rows, tiles 2, 3 and 5 `second` rows, and tiles 6 and 7 all 16.
PACELINE_INLINE void configure_tiles(int first, int second) {
  const int wanted = first * 64 + second;
  if (configured_tiles == wanted) return;
  TileConfig config;
  const int rows[8] = {first, first, second, second, first, second, kTileRows, kTileRows};
  for (int t = 0; t < 8; ++t) {
    config.rows[t] = static_cast<std::uint8_t>(rows[t]);
    config.row_bytes[t] = kRowBytes;
  }
#if defined(PACELINE_TILES_IN_SOFTWARE)
  software_configure(config);
#else
  asm volatile("ldtilecfg %0" : : "m"(config));
#endif
  configured_tiles = wanted;
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
