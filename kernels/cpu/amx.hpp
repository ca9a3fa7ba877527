// The tile unit (AMX): eight tiles of up to 16 rows of 64 bytes, and how many rows each has.
//
// GCC's intrinsics do not say that tile loads read memory; what they read here was written before
// the call, or by instructions that say so.
#pragma once

#include "kernels/cpu/simd.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

inline constexpr int kTileRows = 16;
inline constexpr std::ptrdiff_t kRowBytes = 64;

/// What LDTILECFG reads.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// Rows of this thread's tiles, as configure_tiles() was last told. Reloading them costs some 60 ns
/// (measured), so a thread keeps what it has. Defined in gemm_amx.cpp.
extern constinit thread_local int configured_tiles;

/// Tiles 0, 1 and 4 get `first` rows, 2, 3 and 5 `second`, and 6 and 7 have all 16.
PACELINE_INLINE void configure_tiles(int first, int second) {
  const int wanted = first * 64 + second;
  if (configured_tiles == wanted) return;
  TileConfig config;
  const int rows[8] = {first, first, second, second, first, second, kTileRows, kTileRows};
  for (int t = 0; t < 8; ++t) {
    config.rows[t] = static_cast<std::uint8_t>(rows[t]);
    config.row_bytes[t] = kRowBytes;
  }
  asm volatile("ldtilecfg %0" : : "m"(config));
  configured_tiles = wanted;
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
