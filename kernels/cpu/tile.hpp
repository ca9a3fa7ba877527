// The one inner loop of every matrix product: a tile of MR rows by NV vectors of 16 outputs held in
// registers, advanced over K one element (or one bf16 pair) at a time. Each output lane is a chain
// of fused multiply-adds over K in ascending order, so a value depends on its own row and column
// only, not on the tile in which it is computed.
//
// bf16 weights are widened to fp32 in registers (a shift and a mask per pair) rather than fed to
// vdpbf16ps. On Intel cores vdpbf16ps issues every other cycle, but fused multiply-adds twice in
// each cycle, so that they do twice the work (2.4 times, measured); they also round once for each
// product and keep subnormals. Cores with a faster dot product use the avx512_bf16 build.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

// Registers: MR * NV accumulators, NV weights, one input value, and one mask where there is room.
#if defined(PACELINE_SIMD_AVX512)
inline constexpr int kMaxTileRows = 12;
inline constexpr int kTileVectors = 2;
#elif defined(PACELINE_SIMD_AVX2)
inline constexpr int kMaxTileRows = 6;
inline constexpr int kTileVectors = 1;
#else
inline constexpr int kMaxTileRows = 2;
inline constexpr int kTileVectors = 1;
#endif

/// Target of the inner loop's prefetches.
enum class Prefetch {
  none,
  same,  ///< the operand, kPrefetchWords ahead: it is streamed from memory
  next,  ///< `Ahead`: a share of the data after the operand, which is in a cache already
  each,  ///< `Ahead`: for each vector the same place in the next operand
};
inline constexpr std::ptrdiff_t kPrefetchWords = 4096 / 4;

/// Cursor of prefetching, which advances with the loop. `step`: bytes for each step of K; at most a
/// cache line if there is one cursor for all vectors.
struct Ahead {
  const std::byte* next = nullptr;
  std::ptrdiff_t step = 0;
};

template <int MR, int NV>
struct Tile {
  F32 at[MR][NV];
};

template <int MR, int NV>
PACELINE_INLINE void clear(Tile<MR, NV>& tile) {
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) tile.at[r][v] = set1(0.0F);
  }
}

template <Prefetch kPrefetch, int MR>
PACELINE_INLINE void prefetch_same(const std::uint32_t* b) {
  if constexpr (kPrefetch == Prefetch::same) {
    // With few rows only memory limits the speed: lines go to the first-level cache. With more rows
    // the second-level cache, which can have more lines in flight, is better (measured).
    if constexpr (MR <= 3) {
      prefetch(b + kPrefetchWords);
    } else {
      prefetch_l2(b + kPrefetchWords);
    }
  }
}

template <Prefetch kPrefetch, int NV>
PACELINE_INLINE void prefetch_next(Ahead* ahead) {
  constexpr int kOperands = kPrefetch == Prefetch::next ? 1 : kPrefetch == Prefetch::each ? NV : 0;
  PACELINE_UNROLL for (int i = 0; i < kOperands; ++i) {
    prefetch_l2(ahead[i].next);
    ahead[i].next += ahead[i].step;
  }
}

/// Loads vectors of b: whole, or 8 lanes with the rest zero.
template <bool kHalf>
PACELINE_INLINE U32 load_lanes(const std::uint32_t* p) {
  if constexpr (kHalf) return load_half(p);
  return load(p);
}

/// Upper 16 bits of each word. `sums`: vectors of sums that the tile has.
template <int sums>
PACELINE_INLINE U32 high_halves(U32 x) {
#if defined(PACELINE_SIMD_AVX2)
  if constexpr (sums == kMaxTileRows) {
    // Sums and operands take 15 of 16 registers. If the mask were in the last one, the compiler
    // would keep a sum in memory, and adding to it would take 1.5 times as long. Smaller tiles are
    // slower with the mask in memory.
    static constexpr std::uint64_t kMask = 0xFFFF0000FFFF0000U;
    alignas(32) static constexpr std::uint64_t kMasks[4] = {kMask, kMask, kMask, kMask};
    PACELINE_UNROLL for (int i = 0; i < 2; ++i) {
      asm("vpand %1, %0, %0" : "+x"(x.v[i]) : "m"(kMasks));
    }
    return x;
  }
#endif
  return x & set1(0xFFFF0000U);
}

/// tile += a * b over `pairs` pairs of K. Row r of element i is a[r * RS + i * KS], fp32. first[v]:
/// vector v of the first pair, [16][2] bf16 ([8][2] if kHalf). `stride`: 32-bit words from one pair
/// to the next.
template <int MR, int NV, int RS, int KS, Prefetch kPrefetch = Prefetch::none, bool kHalf = false>
PACELINE_INLINE void multiply_pairs(Tile<MR, NV>& tile, const float* a,
                                    const std::uint32_t* const (&first)[NV], std::ptrdiff_t stride,
                                    int pairs, Ahead* ahead = nullptr) {
  const std::uint32_t* b[NV];
  PACELINE_UNROLL for (int v = 0; v < NV; ++v) b[v] = first[v];
  for (int p = 0; p < pairs; ++p) {
    prefetch_next<kPrefetch, NV>(ahead);
    F32 w[NV];
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      w[v] = as_float(shift_left<16>(load_lanes<kHalf>(b[v])));
      prefetch_same<kPrefetch, MR>(b[v]);
    }
    PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
      const F32 x = set1(a[r * RS]);
      PACELINE_UNROLL for (int v = 0; v < NV; ++v) tile.at[r][v] = fma(x, w[v], tile.at[r][v]);
    }
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      w[v] = as_float(high_halves<MR * NV>(load_lanes<kHalf>(b[v])));
      b[v] += stride;
    }
    PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
      const F32 x = set1(a[r * RS + KS]);
      PACELINE_UNROLL for (int v = 0; v < NV; ++v) tile.at[r][v] = fma(x, w[v], tile.at[r][v]);
    }
    a += 2 * KS;
  }
}

/// tile += a * b with fp32 weights. first[v]: vector v of the first step. `stride`: words from one
/// step to the next.
template <int MR, int NV, int RS, int KS, Prefetch kPrefetch = Prefetch::none, bool kHalf = false>
PACELINE_INLINE void multiply_singles(Tile<MR, NV>& tile, const float* a,
                                      const std::uint32_t* const (&first)[NV],
                                      std::ptrdiff_t stride, int steps, Ahead* ahead = nullptr) {
  const std::uint32_t* b[NV];
  PACELINE_UNROLL for (int v = 0; v < NV; ++v) b[v] = first[v];
  for (int p = 0; p < steps; ++p) {
    prefetch_next<kPrefetch, NV>(ahead);
    F32 w[NV];
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      w[v] = as_float(load_lanes<kHalf>(b[v]));
      prefetch_same<kPrefetch, MR>(b[v]);
      b[v] += stride;
    }
    PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
      const F32 x = set1(a[r * RS]);
      PACELINE_UNROLL for (int v = 0; v < NV; ++v) tile.at[r][v] = fma(x, w[v], tile.at[r][v]);
    }
    a += KS;
  }
}

#if defined(PACELINE_SIMD_DOT)
/// tile += a * b with the bf16 dot product. Row r of pair i is the 32-bit word a[r * RS + i * KS].
/// The instruction multiplies and adds the two elements of a pair one after the other, the odd one
/// first, and takes subnormals as zero.
template <int MR, int NV, int RS, int KS, Prefetch kPrefetch = Prefetch::none, bool kHalf = false>
PACELINE_INLINE void multiply_dots(Tile<MR, NV>& tile, const std::uint32_t* a,
                                   const std::uint32_t* const (&first)[NV], std::ptrdiff_t stride,
                                   int pairs, Ahead* ahead = nullptr) {
  const std::uint32_t* b[NV];
  PACELINE_UNROLL for (int v = 0; v < NV; ++v) b[v] = first[v];
  for (int p = 0; p < pairs; ++p) {
    prefetch_next<kPrefetch, NV>(ahead);
    U32 w[NV];
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      w[v] = load_lanes<kHalf>(b[v]);
      prefetch_same<kPrefetch, MR>(b[v]);
      b[v] += stride;
    }
    PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
      const U32 x = set1(a[r * RS]);
      PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
        tile.at[r][v].v = _mm512_dpbf16_ps(tile.at[r][v].v, (__m512bh)x.v, (__m512bh)w[v].v);
      }
    }
    a += KS;
  }
}
#endif

}  // namespace paceline::kernels::cpu::PACELINE_ISA
