// A tile of latent vectors, laid out as K and V of one kv head. The cache keeps each position's
// vector once, in one piece: all its elements are the key, the first ones are the value too. So a
// tile is transposed before row heads visit it; this takes a small part of the time of 16 row
// heads.
#pragma once

#include "kernels/cpu/attention_positions.hpp"
#include "kernels/cpu/simd_bf16.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

/// Vector used for places past the last position.
alignas(64) inline constexpr float kNoVector[kMaxLatentDim] = {};

/// to[i * stride + p] = rows[p][first + i] for 16 rows p and 16 words i.
PACELINE_INLINE void transpose(const std::uint32_t* const* rows, int first, std::uint32_t* to,
                               int stride) {
#if defined(PACELINE_SIMD_AVX512)
  __m512i a[16];
  __m512i b[16];
  PACELINE_UNROLL for (int p = 0; p < 16; ++p) a[p] = _mm512_loadu_si512(rows[p] + first);
  PACELINE_UNROLL for (int p = 0; p < 16; p += 2) {
    b[p] = _mm512_unpacklo_epi32(a[p], a[p + 1]);
    b[p + 1] = _mm512_unpackhi_epi32(a[p], a[p + 1]);
  }
  // a[4k + j]: words j of every four, of rows 4k to 4k + 3.
  PACELINE_UNROLL for (int p = 0; p < 16; p += 4) {
    a[p] = _mm512_unpacklo_epi64(b[p], b[p + 2]);
    a[p + 1] = _mm512_unpackhi_epi64(b[p], b[p + 2]);
    a[p + 2] = _mm512_unpacklo_epi64(b[p + 1], b[p + 3]);
    a[p + 3] = _mm512_unpackhi_epi64(b[p + 1], b[p + 3]);
  }
  PACELINE_UNROLL for (int j = 0; j < 4; ++j) {
    const __m512i even = _mm512_shuffle_i32x4(a[j], a[4 + j], 0x88);
    const __m512i odd = _mm512_shuffle_i32x4(a[j], a[4 + j], 0xDD);
    const __m512i later_even = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0x88);
    const __m512i later_odd = _mm512_shuffle_i32x4(a[8 + j], a[12 + j], 0xDD);
    const auto put = [&](int word, __m512i x) __attribute__((always_inline)) {
      _mm512_storeu_si512(to + static_cast<std::ptrdiff_t>(word) * stride, x);
    };
    put(j, _mm512_shuffle_i32x4(even, later_even, 0x88));
    put(4 + j, _mm512_shuffle_i32x4(odd, later_odd, 0x88));
    put(8 + j, _mm512_shuffle_i32x4(even, later_even, 0xDD));
    put(12 + j, _mm512_shuffle_i32x4(odd, later_odd, 0xDD));
  }
#else
  for (std::ptrdiff_t i = 0; i < 16; ++i)
    for (int p = 0; p < 16; ++p) to[i * stride + p] = rows[p][first + i];
#endif
}

/// Lays out K of a group: words of 16 vectors, lanes along positions. `words`: words of a vector.
PACELINE_INLINE void lay_keys(const std::uint32_t* const* rows, int words, std::uint32_t* to) {
  int i = 0;
  for (; i + kLanes <= words; i += kLanes)
    transpose(rows, i, to + static_cast<std::ptrdiff_t>(i) * kTile, kTile);
  for (; i < words; ++i) {
    for (int p = 0; p < kLanes; ++p) to[static_cast<std::ptrdiff_t>(i) * kTile + p] = rows[p][i];
  }
}

/// Lays out V of a group: [8][d] pairs of positions in bf16, or [16][d] in fp32.
PACELINE_INLINE void lay_values(const AttentionArgs& args, const std::uint32_t* const* rows,
                                std::uint32_t* to) {
  const int d = args.value_dim;
  if (!args.bf16) {
    for (std::ptrdiff_t p = 0; p < kLanes; ++p)
      __builtin_memcpy(to + p * d, rows[p], static_cast<std::size_t>(d) * 4);
    return;
  }
  for (std::ptrdiff_t p = 0; p < kLanes; p += 2) {
    const auto* even = reinterpret_cast<const std::uint16_t*>(rows[p]);
    const auto* odd = reinterpret_cast<const std::uint16_t*>(rows[p + 1]);
    std::uint32_t* pairs = to + p / 2 * d;
    int i = 0;
    for (; i + kLanes <= d; i += kLanes) {
      const U32 low = shift_right<16>(as_bits(load_bf16(even + i)));
      store(pairs + i, low | as_bits(load_bf16(odd + i)));
    }
    for (; i < d; ++i) pairs[i] = even[i] | static_cast<std::uint32_t>(odd[i]) << 16;
  }
}

/// Lays out the stretch's tile at `start` as a block of kTile positions. `to`: memory of kTile keys
/// and values. Places past the end of the stretch in its last group are zero.
PACELINE_INLINE Branch lay_tile(const AttentionArgs& args, const Stretch& stretch, int start,
                                float* to) {
  const std::size_t vector_bytes = static_cast<std::size_t>(args.head_dim) * (args.bf16 ? 2 : 4);
  const int words = static_cast<int>(vector_bytes / 4);
  const int left = stretch.end - start < kTile ? stretch.end - start : kTile;
  auto* keys = reinterpret_cast<std::uint32_t*>(to);
  Branch tile;
  tile.first = start;
  tile.size = kTile;
  tile.k_bytes = vector_bytes * kTile;
  tile.data = reinterpret_cast<const std::byte*>(to);
  std::uint32_t* values = keys + static_cast<std::ptrdiff_t>(words) * kTile;
  const std::ptrdiff_t group_words =
      static_cast<std::ptrdiff_t>(args.value_dim) * kLanes / (args.bf16 ? 2 : 1);
  for (int first = 0; first < left; first += kLanes, values += group_words) {
    const std::uint32_t* rows[kLanes];
    for (int p = 0; p < kLanes; ++p) {
      int at = start + first + p;
      if (at >= stretch.end) {
        rows[p] = reinterpret_cast<const std::uint32_t*>(kNoVector);
        continue;
      }
      if (stretch.path != nullptr && at >= stretch.path->path_base)
        at = stretch.path->path[at - stretch.path->path_base];
      rows[p] = reinterpret_cast<const std::uint32_t*>(
          args.cache + stretch.blocks[at / args.block] * args.block_bytes +
          at % args.block * vector_bytes);
    }
    lay_keys(rows, words, keys + first);
    lay_values(args, rows, values);
  }
  return tile;
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
