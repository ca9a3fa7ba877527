// Attention's products in vectors: every score is one chain of additions over the head, every
// output lane one chain over positions.
#pragma once

#include "kernels/cpu/attention_positions.hpp"
#include "kernels/cpu/attention_softmax.hpp"
#include "kernels/cpu/attention_state.hpp"
#include "kernels/cpu/tile.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

/// scores[r][...] = q . k for NV groups and MR row heads. `block`: positions of the groups' block.
template <Way way, int MR, int NV>
void score(const AttentionArgs& args, const float* q, const std::byte* const* groups,
           const Ahead* fetch, int block, float* scores) {
  const std::uint32_t* b[NV];
  Ahead ahead[NV];
  PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
    b[v] = reinterpret_cast<const std::uint32_t*>(groups[v]);
    ahead[v] = fetch[v];
  }
  Tile<MR, NV> tile;
  clear(tile);
  if constexpr (way == Way::dots) {
#if defined(PACELINE_SIMD_DOT)
    multiply_dots<MR, NV, kQueryStride, 1, Prefetch::each>(
        tile, reinterpret_cast<const std::uint32_t*>(q), b, block, args.head_dim / 2, ahead);
#endif
  } else if constexpr (way == Way::widened) {
    multiply_pairs<MR, NV, kQueryStride, 1, Prefetch::each>(tile, q, b, block, args.head_dim / 2,
                                                            ahead);
  } else {
    multiply_singles<MR, NV, kQueryStride, 1, Prefetch::each>(tile, q, b, block, args.head_dim,
                                                              ahead);
  }
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      store(scores + r * kTile + v * kLanes, tile.at[r][v]);
    }
  }
}

/// out[r][NV * 16 lanes] = alpha[r] * out[r][...] + weights . V over `count` groups. kHalf: V has
/// only the first 8 lanes.
template <Way way, int MR, int NV, bool kHalf>
void accumulate(const AttentionArgs& args, const float* weights, const float* alpha,
                const Groups& groups, const Ahead* fetch, int count, int lane, float* out) {
  // Cache lines of K or V for each vector of a group.
  constexpr int kSteps = kBf16<way> ? kLanes / 2 : kLanes;
  const int d = args.value_dim;
  const int width = whole_vectors(d);
  Tile<MR, NV> tile;
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    const F32 scale = set1(alpha[r]);
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      tile.at[r][v] = load(out + r * width + lane + v * kLanes) * scale;
    }
  }
  for (int g = 0; g < count; ++g) {
    const std::uint32_t* b[NV];
    Ahead ahead[NV];
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      const std::ptrdiff_t at = lane + v * kLanes;
      b[v] = reinterpret_cast<const std::uint32_t*>(groups.v[g]) + at;
      const std::ptrdiff_t step = fetch[g].step;
      ahead[v] = {fetch[g].next + at / kLanes * kSteps * step, step};
    }
    if constexpr (way == Way::dots) {
#if defined(PACELINE_SIMD_DOT)
      const auto* pairs = reinterpret_cast<const std::uint32_t*>(weights) + g * kLanes / 2;
      multiply_dots<MR, NV, kTile, 1, Prefetch::each, kHalf>(tile, pairs, b, d, kSteps, ahead);
#endif
    } else if constexpr (way == Way::widened) {
      multiply_pairs<MR, NV, kTile, 1, Prefetch::each, kHalf>(tile, weights + g * kLanes, b, d,
                                                              kSteps, ahead);
    } else {
      multiply_singles<MR, NV, kTile, 1, Prefetch::each, kHalf>(tile, weights + g * kLanes, b, d,
                                                                kSteps, ahead);
    }
  }
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      store(out + r * width + lane + v * kLanes, tile.at[r][v]);
    }
  }
}

/// Number of vectors side by side, more for few rows, as in gemm.cpp.
constexpr int wide_vectors(int rows) {
#if defined(PACELINE_SIMD_AVX512)
  return rows <= 4 ? 4 : 2;
#elif defined(PACELINE_SIMD_AVX2)
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
#else
  return rows == 1 ? 2 : 1;
#endif
}

/// Row heads of the first part: all, if registers hold them, or the larger half. But 7 are cut into
/// 5 and 2: 3 row heads are too few chains of additions for the multipliers, and take as long as 4.
constexpr int rows_at_once(int rows) {
  return rows <= kMaxTileRows ? rows : rows == 7 ? 5 : (rows + 1) / 2;
}

/// Scores of MR row heads, which registers can hold, over groups [first, last) of the tile, in
/// blocks of `block` positions.
template <Way way, int MR>
PACELINE_INLINE void score_rows(const AttentionArgs& args, const float* q, const Groups& tile,
                                const Fetch& fetch, int first, int last, int block, float* scores) {
  constexpr int kWide = wide_vectors(MR);
  int g = first;
  for (; g + kWide <= last; g += kWide) {
    score<way, MR, kWide>(args, q, tile.k + g, fetch.values + g, block, scores + g * kLanes);
  }
  for (; g < last; ++g) {
    score<way, MR, 1>(args, q, tile.k + g, fetch.values + g, block, scores + g * kLanes);
  }
}

/// Scores of a row tile of MR row heads, in two parts where registers hold fewer: the second part
/// reads K from the first-level cache. Both parts prefetch the same lines: if only the first did, 7
/// query heads would take 7 % longer (measured; probably some of many prefetches are dropped).
template <Way way, int MR>
void score_tile(const AttentionArgs& args, const float* q, const Groups& tile, Fetch& fetch,
                int first, int last, int block, float* scores) {
  constexpr int kRows = rows_at_once(MR);
  score_rows<way, kRows>(args, q, tile, fetch, first, last, block, scores);
  if constexpr (kRows < MR) {
    score_rows<way, MR - kRows>(args, q + kRows * kQueryStride, tile, fetch, first, last, block,
                                scores + kRows * kTile);
  }
}

template <Way way, int MR>
PACELINE_INLINE void accumulate_rows(const AttentionArgs& args, const float* weights,
                                     const float* alpha, const Groups& tile, const Fetch& fetch,
                                     int groups, float* out) {
  constexpr int kWide = wide_vectors(MR);
  int lane = 0;
  for (; lane + kWide * kLanes <= args.value_dim; lane += kWide * kLanes) {
    accumulate<way, MR, kWide, false>(args, weights, alpha, tile, fetch.keys, groups, lane, out);
  }
  for (; lane + kLanes <= args.value_dim; lane += kLanes) {
    accumulate<way, MR, 1, false>(args, weights, alpha, tile, fetch.keys, groups, lane, out);
  }
  if (lane < args.value_dim) {
    accumulate<way, MR, 1, true>(args, weights, alpha, tile, fetch.keys, groups, lane, out);
  }
}

/// Accumulates MR row heads, in the same two parts.
template <Way way, int MR>
void accumulate_tile(const AttentionArgs& args, const float* weights, const float* alpha,
                     const Groups& tile, Fetch& fetch, int groups, float* out) {
  constexpr int kRows = rows_at_once(MR);
  accumulate_rows<way, kRows>(args, weights, alpha, tile, fetch, groups, out);
  if constexpr (kRows < MR) {
    accumulate_rows<way, MR - kRows>(
        args, weights + kRows * kTile, alpha + kRows, tile, fetch, groups,
        out + static_cast<std::ptrdiff_t>(kRows) * whole_vectors(args.value_dim));
  }
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
