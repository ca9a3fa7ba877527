// The state of attention's softmax for row heads in a segment.
#pragma once

#include <cstddef>

#include "kernels/cpu/simd_math.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

/// Elements of the vectors that hold a head: head_dim rounded up to whole vectors.
PACELINE_INLINE int whole_vectors(int head_dim) {
  return (head_dim + kLanes - 1) / kLanes * kLanes;
}

/// The softmax of row heads over the positions seen so far.
struct State {
  float* out;    // [row heads][whole vectors of head_dim] accumulators
  float* max;    // [row heads]
  float* total;  // [row heads]
};

/// A state in memory of attention_state_floats().
PACELINE_INLINE State state_at(float* at, int row_heads, int width) {
  float* max = at + static_cast<std::ptrdiff_t>(row_heads) * width;
  return {at, max, max + row_heads};
}

/// Begins a state that has seen no position. The maximum is finite, so that a tile without
/// positions visible to a row leaves the row's state as it is.
PACELINE_INLINE void begin(const State& state, int first, int count, int width) {
  for (int r = first; r < first + count; ++r) {
    state.max[r] = -__FLT_MAX__;
    state.total[r] = 0.0F;
  }
  __builtin_memset(state.out + static_cast<std::ptrdiff_t>(first) * width, 0,
                   static_cast<std::size_t>(count) * width * sizeof(float));
}

/// before += segment, for row heads [first, first + count). Adding to an empty state keeps bits.
PACELINE_INLINE void add(const State& segment, const State& before, int first, int count,
                         int width) {
  for (int r = first; r < first + count; r += kLanes) {
    const int n = first + count - r < kLanes ? first + count - r : kLanes;
    const F32 old = load_n(before.max + r, n);
    const F32 now = load_n(segment.max + r, n);
    const F32 top = max(old, now);
    const F32 keep = exp(old - top);
    const F32 take = exp(now - top);
    store_part(before.max + r, top, n);
    store_part(before.total + r,
               load_n(before.total + r, n) * keep + load_n(segment.total + r, n) * take, n);
    float keeps[kLanes];
    float takes[kLanes];
    store(keeps, keep);
    store(takes, take);
    for (int i = 0; i < n; ++i) {
      float* to = before.out + static_cast<std::ptrdiff_t>(r + i) * width;
      const float* from = segment.out + static_cast<std::ptrdiff_t>(r + i) * width;
      for (int lane = 0; lane < width; lane += kLanes)
        store(to + lane, load(to + lane) * set1(keeps[i]) + load(from + lane) * set1(takes[i]));
    }
  }
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
