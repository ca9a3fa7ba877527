// Attention's products on the tile unit (AMX), 16 row heads at a time. K and V are in the cache in
// the unit's order, in pairs; queries and weights are bf16.
//
// Scores are chains of the unit's steps over the head, 32 elements each (gemm_amx.cpp has the order
// of additions in a step). The product of weights and V of a tile is a chain over the tile's two
// halves that begins at zero; a fused multiply-add adds it to the scaled accumulator. The unit's
// tiles have as many rows as the largest row tile of a stretch. A smaller row tile ignores the
// other rows, as each row of a product depends on its own inputs only.
#pragma once

#include "kernels/cpu/amx.hpp"
#include "kernels/cpu/attention_positions.hpp"
#include "kernels/cpu/attention_state.hpp"
#include "kernels/cpu/tile.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

inline constexpr int kStepElements = 32;  // elements of a head, or positions, of one step
inline constexpr int kStepLines = 16;     // cache lines of K or V in a step

PACELINE_INLINE void fetch_lines(Ahead& ahead, int lines) {
  for (int line = 0; line < lines; ++line) fetch_line(ahead);
}

/// Most row tiles for which the softmax prefetches too. With more, shares are small, and
/// prefetching takes more time than it saves (measured).
inline constexpr int kMostThatFetch = 4;

/// Divides the prefetches among `row_tiles` visits: three quarters during the steps, and the rest
/// during the softmax, when memory would be idle otherwise. Compared with prefetching during the
/// steps only, decoding takes up to 5 % less time and verification 4 to 12 % less (measured).
PACELINE_INLINE void share_out(Fetch& fetch, int head_dim, int row_tiles) {
  if (row_tiles > kMostThatFetch) {
    fetch.step_lines = (kStepLines + row_tiles - 1) / row_tiles;
    return;
  }
  const int steps = head_dim / kStepElements;
  const int lines = (head_dim / 2 + row_tiles - 1) / row_tiles;  // lines of each group in one visit
  fetch.step_lines = lines * 3 / 4 / steps;
  fetch.softmax_lines = lines - fetch.step_lines * steps;
}

/// Reads a word of each of a step's lines of K. Tile loads alone, even of prefetched lines, reach
/// only 0.88 of the bandwidth of ordinary loads (measured).
PACELINE_INLINE void touch_step(const std::byte* k, std::ptrdiff_t pair_bytes) {
  for (int line = 0; line < kStepLines; ++line)
    asm volatile("movl %0, %%eax" : : "m"(k[line * pair_bytes]) : "eax");
}

/// scores[r][g][...] = q . k for `count` groups, which begin at k[g]. `q`: [16][kQueryStride]
/// words; each row begins with a head.
template <int count>
PACELINE_INLINE void score_groups(const AttentionArgs& args, const float* q,
                                  const std::byte* const* k, Ahead* fetch, int lines, int block,
                                  float* scores) {
  constexpr std::ptrdiff_t kQueryBytes = kQueryStride * 4;
  constexpr std::ptrdiff_t kScoreBytes = kTile * 4;
  const std::ptrdiff_t pair_bytes = std::ptrdiff_t{4} * block;
  Ahead ahead[count];
  PACELINE_UNROLL for (int g = 0; g < count; ++g) ahead[g] = fetch[g];
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int i = 0; i < args.head_dim; i += kStepElements) {
    const std::ptrdiff_t at = i / 2 * pair_bytes;
    if (i + kStepElements < args.head_dim) {
      for (int g = 0; g < count; ++g) touch_step(k[g] + at + kStepLines * pair_bytes, pair_bytes);
    }
    _tile_loadd(4, q + i / 2, kQueryBytes);
    _tile_loadd(6, k[0] + at, pair_bytes);
    _tile_dpbf16ps(0, 4, 6);
    fetch_lines(ahead[0], lines);
    if constexpr (count > 1) {
      _tile_loadd(7, k[1] + at, pair_bytes);
      _tile_dpbf16ps(1, 4, 7);
      fetch_lines(ahead[1], lines);
    }
    if constexpr (count > 2) {
      _tile_loadd(6, k[2] + at, pair_bytes);
      _tile_dpbf16ps(2, 4, 6);
      fetch_lines(ahead[2], lines);
    }
    if constexpr (count > 3) {
      _tile_loadd(7, k[3] + at, pair_bytes);
      _tile_dpbf16ps(3, 4, 7);
      fetch_lines(ahead[3], lines);
    }
  }
  PACELINE_UNROLL for (int g = 0; g < count; ++g) fetch[g] = ahead[g];
  _tile_stored(0, scores, kScoreBytes);
  if constexpr (count > 1) _tile_stored(1, scores + kLanes, kScoreBytes);
  if constexpr (count > 2) _tile_stored(2, scores + 2 * kLanes, kScoreBytes);
  if constexpr (count > 3) _tile_stored(3, scores + 3 * kLanes, kScoreBytes);
}

/// Scores of 16 row heads over groups [first, last) of the tile, as score_tile() does in vectors.
static void score_in_tiles(const AttentionArgs& args, const float* q, const Groups& tile,
                           Fetch& fetch, int first, int last, int block, float* scores) {
  const std::byte* const* k = tile.k + first;
  Ahead* ahead = fetch.values + first;
  float* to = scores + first * kLanes;
  switch (last - first) {
    case 1:
      return score_groups<1>(args, q, k, ahead, fetch.step_lines, block, to);
    case 2:
      return score_groups<2>(args, q, k, ahead, fetch.step_lines, block, to);
    case 3:
      return score_groups<3>(args, q, k, ahead, fetch.step_lines, block, to);
    case 4:
      return score_groups<4>(args, q, k, ahead, fetch.step_lines, block, to);
    default:
      return;
  }
}

/// Makes each two groups of V contiguous, so that a step finds its 32 positions in one piece.
/// Groups that are contiguous already stay in place; others are copied to `to`, [kTile /
/// 2][head_dim] words, where missing groups are zero.
static void join_values(Groups& tile, int groups, int head_dim, std::uint32_t* to) {
  const std::ptrdiff_t words = std::ptrdiff_t{kLanes / 2} * head_dim;
  for (int g = 0; g < groups; g += 2) {
    if (g + 1 < groups && tile.v[g + 1] == tile.v[g] + words * 4) continue;
    std::uint32_t* joined = to + g * words;
    for (int of = 0; of < 2; ++of) {
      const auto* from = reinterpret_cast<const std::uint32_t*>(tile.v[g + of]);
      for (std::ptrdiff_t i = 0; i < words; i += kLanes) {
        store(joined + of * words + i, g + of < groups ? load(from + i) : set1(0U));
      }
    }
    tile.v[g] = reinterpret_cast<const std::byte*>(joined);
  }
}

/// sums[r][lane ... lane + 16 NV) = weights . V over `steps` halves of a tile.
template <int NV>
PACELINE_INLINE void multiply_values(const float* weights, const Groups& tile, Ahead* fetch,
                                     int lines, int steps, std::ptrdiff_t width, int lane,
                                     float* sums) {
  const std::ptrdiff_t row_bytes = width * 4;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int step = 0; step < steps; ++step) {
    const std::byte* v = tile.v[2 * step] + lane * 4;
    _tile_loadd(4, weights + step * kLanes, kTile * 4);
    _tile_loadd(6, v, row_bytes);
    _tile_dpbf16ps(0, 4, 6);
    fetch_lines(fetch[2 * step], lines);
    _tile_loadd(7, v + kRowBytes, row_bytes);
    _tile_dpbf16ps(1, 4, 7);
    fetch_lines(fetch[2 * step + 1], lines);
    if constexpr (NV == 4) {
      _tile_loadd(6, v + 2 * kRowBytes, row_bytes);
      _tile_dpbf16ps(2, 4, 6);
      fetch_lines(fetch[2 * step], lines);
      _tile_loadd(7, v + 3 * kRowBytes, row_bytes);
      _tile_dpbf16ps(3, 4, 7);
      fetch_lines(fetch[2 * step + 1], lines);
    }
  }
  _tile_stored(0, sums + lane, row_bytes);
  _tile_stored(1, sums + lane + kLanes, row_bytes);
  if constexpr (NV == 4) {
    _tile_stored(2, sums + lane + 2 * kLanes, row_bytes);
    _tile_stored(3, sums + lane + 3 * kLanes, row_bytes);
  }
}

/// out[r][...] = alpha[r] * out[r][...] + weights . V for MR row heads, over a tile with joined
/// values.
template <int MR>
void accumulate_in_tiles(const AttentionArgs& args, const float* weights, const float* alpha,
                         const Groups& tile, Fetch& fetch, int groups, float* out) {
  static_assert(kMaxHeadDim <= kMaxLatentValues);
  alignas(64) float sums[kTileRows * kMaxLatentValues];
  const int width = args.value_dim;
  Ahead ahead[kGroups];
  PACELINE_UNROLL for (int g = 0; g < kGroups; ++g) ahead[g] = fetch.keys[g];
  const int steps = (groups + 1) / 2;
  int lane = 0;
  for (; lane + 4 * kLanes <= width; lane += 4 * kLanes)
    multiply_values<4>(weights, tile, ahead, fetch.step_lines, steps, width, lane, sums);
  if (lane < width)
    multiply_values<2>(weights, tile, ahead, fetch.step_lines, steps, width, lane, sums);
  PACELINE_UNROLL for (int g = 0; g < kGroups; ++g) fetch.keys[g] = ahead[g];
  for (int r = 0; r < MR; ++r) {
    const F32 scale = set1(alpha[r]);
    float* to = out + static_cast<std::ptrdiff_t>(r) * width;
    const float* from = sums + static_cast<std::ptrdiff_t>(r) * width;
    for (lane = 0; lane < width; lane += kLanes)
      store(to + lane, fma(load(to + lane), scale, load(from + lane)));
  }
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
