// Common parts of the sampler's kernels: the division of a row, its state, and its order of tokens.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/sample.hpp"

namespace paceline::kernels::cuda {

/// Number of tokens in a chunk. They are skipped together or not at all; the 16 counters of their
/// noise are neighbours.
inline constexpr int kChunk = 64;
/// Number of tokens for one thread block and in one partial sum: a span.
inline constexpr int kSpan = 4096;
inline constexpr int kSpanChunks = kSpan / kChunk;

[[nodiscard]] constexpr int spans_of(int vocab) { return (vocab + kSpan - 1) / kSpan; }

/// A place in the order of tokens: a larger key has the larger value, or the same and the lower id.
/// 0 is no token.
using Key = unsigned long long;

/// Sums of one span. `full`: of all tokens; `allowed`: without the banned ones.
struct SpanSums {
  float full_max, full_sum;
  float allowed_max, allowed_sum;
  int bad;  ///< whether a logit is NaN or infinite
};

/// The tokens that a row's noise chooses from.
struct RowState {
  double full_sum;  ///< sum of exp(s - full_max)
  double kept_sum;  ///< sum of exp(s - allowed_max) over the kept tokens
  float full_max;
  float allowed_max;
  float scale;       ///< 1 / T; 1 at temperature 0
  float keep_value;  ///< kept if s is above it, or equal and id <= keep_id
  std::int32_t keep_id;
  float floor;  ///< a score that the tokens to be found reach
  int fault;
};

/// Results that a kernel stores for the next one.
struct SampleWorkspace {
  RowState* states;  ///< [rows]
  Key* keys;         ///< [rows, spans, best], descending
  SpanSums* sums;    ///< [rows, spans]
  float* chunk_max;  ///< [rows, spans * kSpanChunks] of allowed s
};

/// The logits of a call.
struct SampleInput {
  const float* logits;  ///< [rows, stride]
  std::size_t stride;
  int vocab;
  SampleRows sampled;
};

/// Returns a float as bits that sort as unsigned integers. -0 and +0 have the same bits.
__device__ __forceinline__ std::uint32_t ascending_bits(float x) {
  const std::uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0F));
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float from_ascending_bits(std::uint32_t bits) {
  return __uint_as_float((bits & 0x80000000U) != 0 ? bits & 0x7FFFFFFFU : ~bits);
}
__device__ __forceinline__ Key key_of(float value, int id) {
  return static_cast<Key>(ascending_bits(value)) << 32 | ~static_cast<std::uint32_t>(id);
}
__device__ __forceinline__ float value_of(Key key) {
  return from_ascending_bits(static_cast<std::uint32_t>(key >> 32));
}
__device__ __forceinline__ int id_of(Key key) {
  return static_cast<int>(~static_cast<std::uint32_t>(key));
}

/// Returns the largest key of a warp, in every lane.
__device__ __forceinline__ Key warp_max(Key key) {
  const auto high = static_cast<std::uint32_t>(key >> 32);
  const std::uint32_t top = __reduce_max_sync(kAllLanes, high);
  const std::uint32_t low =
      __reduce_max_sync(kAllLanes, high == top ? static_cast<std::uint32_t>(key) : 0U);
  return static_cast<Key>(top) << 32 | low;
}

__device__ __forceinline__ float scale_of(const DeviceSampleRow& row) {
  return row.temperature == 0.0F ? 1.0F : __fdiv_rn(1.0F, row.temperature);
}

/// Returns how many of `count` ascending tokens are below `token`. token_at(i): the i-th one.
template <class TokenAt>
__device__ __forceinline__ int count_below(int count, int token, const TokenAt& token_at) {
  int first = 0;
  while (count > 0) {
    const int half = count / 2;
    const bool below = token_at(first + half) < token;
    first = below ? first + half + 1 : first;
    count = below ? count - half - 1 : half;
  }
  return first;
}
/// Returns how many of the row's banned tokens are below `token`.
__device__ __forceinline__ int banned_below(const SampleInput& in, const DeviceSampleRow& row,
                                            int token) {
  const TokenId* banned = in.sampled.banned + row.first_banned;
  return count_below(row.banned, token, [banned](int i) { return banned[i]; });
}
__device__ __forceinline__ bool is_banned(const SampleInput& in, const DeviceSampleRow& row,
                                          int token) {
  const int place = banned_below(in, row, token);
  return place < row.banned && in.sampled.banned[row.first_banned + place] == token;
}
/// Returns how many of the row's edits are of tokens below `token`.
__device__ __forceinline__ int edits_below(const SampleInput& in, const DeviceSampleRow& row,
                                           int token) {
  const LogitEdit* edits = in.sampled.edits + row.first_edit;
  return count_below(row.edits, token, [edits](int i) { return edits[i].token; });
}
/// Returns a token's logit after the row's edit of it, if there is one.
__device__ __forceinline__ float after_edits(const SampleInput& in, const DeviceSampleRow& row,
                                             int token, float logit) {
  if (row.edits == 0) return logit;
  const int place = edits_below(in, row, token);
  if (place == row.edits) return logit;
  const LogitEdit& edit = in.sampled.edits[row.first_edit + place];
  return edit.token == token ? edited(edit, logit) : logit;
}

/// Returns whether the filters keep the token, which may be banned.
__device__ __forceinline__ bool is_kept(const RowState& state, float s, int token) {
  return s > state.keep_value || (s == state.keep_value && token <= state.keep_id);
}

/// Computes the scores of a half-warp's chunk that reach state.floor, as keys. keys[j] is for token
/// 16 j + lane % 16 of the chunk, and 0 if the score is lower. `chunk` may differ between the
/// halves; -1: none.
__device__ __forceinline__ void score_chunk(const SampleInput& in, const DeviceSampleRow& row,
                                            const float* logits, const RowState& state, int chunk,
                                            float chunk_max, Key (&keys)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 16;
  const bool greedy = row.temperature == 0.0F;
  const float bound = greedy ? 0.0F : kGumbelBound;
  // Noise does not matter for a given token. At temperature 0 it matters only whether the token has
  // the best logit.
  bool possible = chunk >= 0 && (row.given < 0 || greedy) && chunk_max >= state.keep_value &&
                  __fadd_rn(chunk_max, bound) >= state.floor && chunk_max > -INFINITY;
  std::uint32_t bits[4] = {0, 0, 0, 0};
  if (possible && !greedy) {
    const uint4 words = noise_words(row.noise, static_cast<std::uint32_t>(row.step),
                                    static_cast<std::uint32_t>(chunk * 16 + lane));
    bits[0] = words.x, bits[1] = words.y, bits[2] = words.z, bits[3] = words.w;
    const std::uint32_t least = least_bits(__fsub_rn(state.floor, chunk_max), state.floor);
    possible = bits[0] >= least || bits[1] >= least || bits[2] >= least || bits[3] >= least;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    keys[j] = 0;
    const int token = chunk * kChunk + 16 * j + lane;
    if (!possible || token >= in.vocab) continue;
    const float s = __fmul_rn(after_edits(in, row, token, logits[token]), state.scale);
    if (!is_kept(state, s, token) || s == -INFINITY || is_banned(in, row, token)) continue;
    const float score = greedy ? s : __fadd_rn(s, gumbel(bits[j]));
    if (score >= state.floor) keys[j] = key_of(score, token);
  }
}

/// Returns the largest of a lane's keys below `before`.
template <int count>
__device__ __forceinline__ Key best_below(const Key (&keys)[count], Key before) {
  Key best = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if (keys[i] < before && keys[i] > best) best = keys[i];
  }
  return best;
}

}  // namespace paceline::kernels::cuda
