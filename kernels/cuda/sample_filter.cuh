// The filters top-k, top-p and min-p for one row, by a thread block. Each keeps a prefix of the
// tokens ordered by s (largest first, lowest id on ties), so its result is the last token of that
// prefix. This token is found by counting in histograms of ever narrower ranges of s. Probabilities
// in them are whole multiples of 2^-40, so that the order of the atomic additions does not matter.
#pragma once

#include "kernels/cuda/sample_row.cuh"

namespace paceline::kernels::cuda {

inline constexpr int kBins = 2048;
inline constexpr float kBinsPerUnit = 64;
/// The whole number that stands for exp(s - max) = 1.
inline constexpr float kMassUnit = 1099511627776.0F;
/// Number of bins below the maximum that are counted first: a depth of 8.
inline constexpr int kFirstBins = 8 * 64;

/// The count of tokens and the sum of their probabilities, in units of 1 / kMassUnit.
struct Tally {
  unsigned long long count, mass;
};

struct FilterShared {
  unsigned long long masses[kBins];
  unsigned counts[kBins];
  Tally warps[kWarp];  ///< [warps] sums
  Tally above, group;  ///< tallies before the found bin and in it
  unsigned long long mass;
  int found;
};

/// The last kept token, and the mass of all kept tokens.
struct Kept {
  float value;
  int id;
  unsigned long long mass;
};

struct Filter {
  const SampleInput& in;
  const DeviceSampleRow& row;
  const float* logits;     ///< [vocab]
  const float* chunk_max;  ///< [chunks]
  float scale;
  float max;  ///< largest s
  FilterShared& shared;
};

__device__ __forceinline__ unsigned long long mass_of(float s, float max) {
  return static_cast<unsigned long long>(exponential(s - max) * kMassUnit);
}

/// Returns the bin for the depth of s below the maximum. A later bin has lower s.
__device__ __forceinline__ int depth_bin(float s, float max) {
  const float depth = (max - s) * kBinsPerUnit;
  return depth < static_cast<float>(kBins - 1) ? static_cast<int>(depth) : kBins - 1;
}

/// Calls f(s, token) for the allowed tokens of all chunks whose largest is not below bin `last`.
/// Tokens of lower values in these chunks are included.
template <class F>
__device__ __forceinline__ void for_tokens(const Filter& filter, int last, const F& f) {
  constexpr int kLanes = 8;  // lanes of a chunk
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const bool aligned = reinterpret_cast<std::uintptr_t>(filter.logits) % 16 == 0;
  const int vocab = filter.in.vocab;
  const int chunks = (vocab + kChunk - 1) / kChunk;
  for (int chunk = static_cast<int>(threadIdx.x) / kLanes; chunk < chunks;
       chunk += static_cast<int>(blockDim.x) / kLanes) {
    const float largest = filter.chunk_max[chunk];
    if (largest == -INFINITY || depth_bin(largest, filter.max) > last) continue;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int first = chunk * kChunk + part * (kChunk / 2) + 4 * lane;
      float x[4];
      if (aligned && first + 4 <= vocab) {
        load4<true>(filter.logits + first, 4, x);
      } else {
        load4<false>(filter.logits + first, vocab - first, x);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (first + i >= vocab) continue;
        const float s =
            __fmul_rn(after_edits(filter.in, filter.row, first + i, x[i]), filter.scale);
        if (s == -INFINITY) continue;
        if (!is_banned(filter.in, filter.row, first + i)) f(s, first + i);
      }
    }
  }
}

__device__ __forceinline__ void clear_histogram(FilterShared& shared) {
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kBins; i += static_cast<int>(blockDim.x)) {
    shared.counts[i] = 0;
    shared.masses[i] = 0;
  }
  if (threadIdx.x == 0) shared.found = -1;
  __syncthreads();
}

__device__ __forceinline__ void enter(FilterShared& shared, int bin, unsigned long long mass) {
  atomicAdd(&shared.counts[bin], 1U);
  atomicAdd(&shared.masses[bin], mass);
}

/// Finds the first bin in which the count or mass, which begin at `above`, reach the target. Sets
/// shared.found (-1: none) and the tallies before the bin and in it.
__device__ __forceinline__ void find_bin(FilterShared& shared, Tally above, bool by_count,
                                         unsigned long long target) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int each = kBins / static_cast<int>(blockDim.x);
  __syncthreads();
  Tally own = {0, 0};
  for (int i = 0; i < each; ++i) {
    own.count += shared.counts[thread * each + i];
    own.mass += shared.masses[thread * each + i];
  }
  Tally sum = own;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const unsigned long long count = __shfl_up_sync(kAllLanes, sum.count, distance);
    const unsigned long long mass = __shfl_up_sync(kAllLanes, sum.mass, distance);
    if (lane >= distance) {
      sum.count += count;
      sum.mass += mass;
    }
  }
  if (lane == kWarp - 1) shared.warps[thread / kWarp] = sum;
  __syncthreads();
  above.count += sum.count - own.count;
  above.mass += sum.mass - own.mass;
  for (int i = 0; i < thread / kWarp; ++i) {
    above.count += shared.warps[i].count;
    above.mass += shared.warps[i].mass;
  }
  for (int i = 0; i < each; ++i) {
    const int bin = thread * each + i;
    const Tally here = {shared.counts[bin], shared.masses[bin]};
    const unsigned long long before = by_count ? above.count : above.mass;
    const unsigned long long size = by_count ? here.count : here.mass;
    if (before < target && target - before <= size) {
      shared.found = bin;
      shared.above = above;
      shared.group = here;
    }
    above.count += here.count;
    above.mass += here.mass;
  }
  __syncthreads();
}

/// Returns the id of the `wanted`-th token, by id, among the tokens with s == value. There must be
/// more than `wanted` of them.
__device__ __forceinline__ int find_tie(const Filter& filter, float value,
                                        unsigned long long wanted) {
  FilterShared& shared = filter.shared;
  const int thread = static_cast<int>(threadIdx.x);
  auto left = static_cast<int>(wanted);
  for (int first = 0; first < filter.in.vocab; first += static_cast<int>(blockDim.x)) {
    const int token = first + thread;
    bool ties = token < filter.in.vocab;
    if (ties) {
      const float logit = after_edits(filter.in, filter.row, token, filter.logits[token]);
      ties = __fmul_rn(logit, filter.scale) == value && !is_banned(filter.in, filter.row, token);
    }
    const int here = __syncthreads_count(ties ? 1 : 0);
    if (here < left) {
      left -= here;
      continue;
    }
    const unsigned mask = __ballot_sync(kAllLanes, ties ? 1 : 0);
    if (thread % kWarp == 0) shared.counts[thread / kWarp] = static_cast<unsigned>(__popc(mask));
    __syncthreads();
    int rank = __popc(mask & ((2U << (thread % kWarp)) - 1U));  // counts itself
    for (int i = 0; i < thread / kWarp; ++i) rank += static_cast<int>(shared.counts[i]);
    if (ties && rank == left) shared.found = token;
    __syncthreads();
    return shared.found;
  }
  return filter.in.vocab - 1;
}

/// Returns the shortest prefix of the allowed tokens that has at least `target` tokens, or a mass
/// of at least `target`. If all have less, returns all (value -infinity). target >= 1. The result
/// is the same in every thread.
__device__ inline Kept shortest_prefix(const Filter& filter, bool by_count,
                                       unsigned long long target) {
  FilterShared& shared = filter.shared;
  const float max = filter.max;
  // First, bins are by depth below the maximum. Bins near it are counted first: in most rows they
  // contain everything that matters.
  for (const int last : {kFirstBins - 1, kBins - 1}) {
    clear_histogram(shared);
    for_tokens(filter, last, [&](float s, int) {
      const int bin = depth_bin(s, max);
      if (bin <= last) enter(shared, bin, mass_of(s, max));
    });
    find_bin(shared, {0, 0}, by_count, target);
    if (shared.found >= 0) break;
  }
  if (shared.found < 0) return {-INFINITY, filter.in.vocab - 1, 0};
  const int depth = shared.found;
  // After this, bins are by the bits of s, highest value first.
  std::uint32_t prefix = 0;
  Tally above = shared.above;
  int shift = 32;
  for (const int bits : {11, 11, 10}) {
    const int before = shift;
    shift -= bits;
    const std::uint32_t mask = (1U << bits) - 1U;
    clear_histogram(shared);
    for_tokens(filter, depth, [&](float s, int) {
      const std::uint32_t order = ascending_bits(s);
      const bool inside = depth_bin(s, max) == depth && (before == 32 || order >> before == prefix);
      if (inside) enter(shared, static_cast<int>(mask - (order >> shift & mask)), mass_of(s, max));
    });
    find_bin(shared, above, by_count, target);
    prefix = prefix << bits | (mask - static_cast<std::uint32_t>(shared.found));
    above = shared.above;
  }
  const Tally group = shared.group;  // all have the same value
  Kept kept;
  kept.value = from_ascending_bits(prefix);
  const unsigned long long each = group.mass / group.count;
  const unsigned long long wanted =
      by_count ? target - above.count : (target - above.mass + each - 1) / each;
  kept.mass = above.mass + wanted * each;
  __syncthreads();
  kept.id = wanted < group.count ? find_tie(filter, kept.value, wanted) : filter.in.vocab - 1;
  return kept;
}

/// Returns the mass of the allowed tokens with s >= cut. The result is the same in every thread.
__device__ __forceinline__ unsigned long long mass_from(const Filter& filter, float cut) {
  FilterShared& shared = filter.shared;
  __syncthreads();
  if (threadIdx.x == 0) shared.mass = 0;
  __syncthreads();
  unsigned long long mass = 0;
  for_tokens(filter, depth_bin(cut, filter.max), [&](float s, int) {
    if (s >= cut) mass += mass_of(s, filter.max);
  });
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    mass += __shfl_xor_sync(kAllLanes, mass, distance);
  }
  if (threadIdx.x % kWarp == 0) atomicAdd(&shared.mass, mass);
  __syncthreads();
  return shared.mass;
}

/// Applies the row's filters to a state that was computed without them.
__device__ inline void apply_filters(const Filter& filter, RowState& state) {
  const DeviceSampleRow& row = filter.row;
  const bool by_count = row.top_k > 0 && row.top_k < filter.in.vocab;
  const bool by_mass = row.top_p < 1.0F;
  const double unit = static_cast<double>(kMassUnit);
  Kept kept = {-INFINITY, filter.in.vocab - 1, 0};
  double kept_sum = state.kept_sum;
  if (by_count) {
    kept = shortest_prefix(filter, true, static_cast<unsigned long long>(row.top_k));
    if (kept.value > -INFINITY) kept_sum = static_cast<double>(kept.mass) / unit;
  }
  if (by_mass) {
    const double target = static_cast<double>(row.top_p) * kept_sum * unit;
    const auto whole = static_cast<unsigned long long>(ceil(target));
    const Kept fewer = shortest_prefix(filter, false, whole < 1 ? 1 : whole);
    if (fewer.value > -INFINITY) {
      kept = fewer;
      kept_sum = static_cast<double>(kept.mass) / unit;
    }
  }
  if (row.min_p > 0.0F) {
    const float cut =
        __double2float_ru(static_cast<double>(filter.max) + log(static_cast<double>(row.min_p)));
    if (kept.value < cut) {
      kept = {cut, filter.in.vocab - 1, mass_from(filter, cut)};
      kept_sum = static_cast<double>(kept.mass) / unit;
    }
  }
  __syncthreads();  // after this, all have read the state
  if (threadIdx.x == 0) {
    state.keep_value = kept.value;
    state.keep_id = kept.id;
    state.kept_sum = kept_sum;
  }
  __syncthreads();
}

}  // namespace paceline::kernels::cuda
