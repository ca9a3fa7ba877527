#include "kernels/cuda/experts.hpp"

#include <cmath>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/kv_layout.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/expert_work.hpp"

namespace paceline::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kOfLane = kMaxExperts / kWarp;  ///< number of experts for each lane

/// Returns whether expert `id` with logit `key` comes before another. A negative id is no expert.
__device__ __forceinline__ bool comes_first(float key, int id, float other_key, int other) {
  if (id < 0 || other < 0) return other < 0 && id >= 0;
  return key > other_key || (key == other_key && id < other);
}

/// Sets the scores and keys of a lane's experts: the row's sigmoids, and the sigmoids with their
/// correction.
__device__ __forceinline__ void score(const float* logits, const Routing& routing, int lane,
                                      float (&scores)[kOfLane], float (&keys)[kOfLane]) {
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int id = i * kWarp + lane;
    if (id >= routing.experts) continue;
    scores[i] = logits[id];
    keys[i] = scores[i];
    if (routing.sigmoid) {
      const float e = exponential(-fabsf(scores[i]));
      scores[i] = __fdiv_rn(scores[i] < 0 ? e : 1.0F, 1.0F + e);
      keys[i] = scores[i] + (routing.correction == nullptr ? 0.0F : routing.correction[id]);
    }
    // A NaN comes last, so that there is an order. The weights of its row are NaN, whichever
    // experts are chosen.
    if (isnan(keys[i])) keys[i] = -INFINITY;
  }
}

/// Makes sure that only experts of the best groups are taken. bests: [groups] for this warp, in
/// shared memory.
__device__ __forceinline__ void keep_groups(const Routing& routing, int lane, float* bests,
                                            float (&keys)[kOfLane]) {
  const int size = routing.experts / routing.groups;
  for (int g = 0; g < routing.groups; ++g) {
    float best = -INFINITY;
    float second = -INFINITY;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int id = i * kWarp + lane;
      if (id >= routing.experts || id / size != g) continue;
      second = fmaxf(second, fminf(best, keys[i]));
      best = fmaxf(best, keys[i]);
    }
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, best, distance);
      const float other_second = __shfl_xor_sync(kAllLanes, second, distance);
      second = fmaxf(fminf(best, other), fmaxf(second, other_second));
      best = fmaxf(best, other);
    }
    if (lane == 0) bests[g] = best + second;
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int id = i * kWarp + lane;
    if (id >= routing.experts) continue;
    const int group = id / size;
    int better = 0;
    for (int g = 0; g < routing.groups; ++g)
      better += bests[g] > bests[group] || (bests[g] == bests[group] && g < group) ? 1 : 0;
    if (better >= routing.chosen_groups) keys[i] = -INFINITY;
  }
}

/// Chooses the experts of one row in each warp. Lane l has experts l, l + 32, ...; sums are over a
/// lane's experts in ascending order, then over lanes.
__global__ void __launch_bounds__(kThreads)
    choose_kernel(const float* logits, int rows, Routing routing, int chosen, bool given,
                  std::int32_t* ids, float* weights) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int row = static_cast<int>(blockIdx.x) * (kThreads / kWarp) + warp;
  if (row >= rows) return;
  const int experts = routing.experts;
  float scores[kOfLane] = {};
  float keys[kOfLane] = {};
  unsigned taken = 0;  // bit i: expert 32 i + lane
  score(logits + static_cast<std::size_t>(row) * experts, routing, lane, scores, keys);
  if (routing.groups > 1 && !given) {
    keep_groups(routing, lane, reinterpret_cast<float*>(dynamic_shared()) + warp * routing.groups,
                keys);
  }
  if (given) {
    for (int c = 0; c < chosen; ++c) {
      const int id = ids[static_cast<std::size_t>(row) * chosen + c];
      if (id % kWarp == lane) taken |= 1U << (id / kWarp);
    }
  }
  const unsigned summed = given && routing.normalised ? taken : ~0U;
  float largest = 0;
  for (int c = 0; c < (given ? 1 : chosen); ++c) {
    float best = 0;
    int best_id = -1;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int id = i * kWarp + lane;
      if (id >= experts || (!given && (taken >> i & 1U) != 0) || (summed >> i & 1U) == 0) continue;
      if (comes_first(keys[i], id, best, best_id)) {
        best = keys[i];
        best_id = id;
      }
    }
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, best, distance);
      const int other_id = __shfl_xor_sync(kAllLanes, best_id, distance);
      if (comes_first(other, other_id, best, best_id)) {
        best = other;
        best_id = other_id;
      }
    }
    if (c == 0) largest = best;
    if (!given && best_id % kWarp == lane) taken |= 1U << (best_id / kWarp);
  }

  float all = 0;
  float of_taken = 0;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (i * kWarp + lane >= experts) continue;
    if (!routing.sigmoid) scores[i] = exponential(scores[i] - largest);
    all += scores[i];
    if ((taken >> i & 1U) != 0) of_taken += scores[i];
  }
  all = warp_sum(all);
  of_taken = warp_sum(of_taken) + (routing.sigmoid ? kLeastTotal : 0.0F);
  float total = routing.normalised ? of_taken : routing.sigmoid ? 1.0F : all;
  if (isnan(all)) total = all;
  std::size_t at = static_cast<std::size_t>(row) * chosen;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const bool mine = (taken >> i & 1U) != 0;
    const unsigned lanes = __ballot_sync(kAllLanes, mine);
    if (mine) {
      const std::size_t place = at + __popc(lanes & ((1U << lane) - 1U));
      ids[place] = i * kWarp + lane;
      weights[place] = __fdiv_rn(scores[i], total) * routing.scale;
    }
    at += __popc(lanes);
  }
}

/// Each thread handles one choice of one row.
__global__ void __launch_bounds__(kThreads)
    store_kernel(const std::int32_t* ids, int chosen, int first, const RoutingPlaces places,
                 const std::int32_t* positions, const std::int64_t* slots, int rows) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int row = i / chosen;
  if (row >= rows || positions[row] < 0) return;
  const std::int64_t slot = slots[row];
  std::int16_t* of_row = routing_of(places, slot / places.positions, slot % places.positions);
  of_row[first + i % chosen] = static_cast<std::int16_t>(ids[i]);
}

/// Gives each choice of an expert of the bank a place: the places of one expert are neighbours, in
/// any order. Runs as one block, with a thread for each possible expert.
__global__ void __launch_bounds__(kMaxExperts)
    place_kernel(const std::int32_t* ids, int choices, int chosen, int first, int experts,
                 int tile_rows, const ExpertPlaces places) {
  auto* const counts = reinterpret_cast<int*>(dynamic_shared());  // later the next places
  int* const row_ends = counts + kMaxExperts;
  int* const tile_ends = row_ends + kMaxExperts;
  const int t = static_cast<int>(threadIdx.x);
  counts[t] = 0;
  __syncthreads();
  for (int i = t; i < choices; i += kMaxExperts) {
    const int expert = ids[i] - first;
    if (expert >= 0 && expert < experts) atomicAdd(counts + expert, 1);
  }
  __syncthreads();
  const int rows = counts[t];
  row_ends[t] = rows;
  tile_ends[t] = (rows + tile_rows - 1) / tile_rows;
  for (int distance = 1; distance < kMaxExperts; distance *= 2) {
    __syncthreads();
    const int more_rows = t >= distance ? row_ends[t - distance] : 0;
    const int more_tiles = t >= distance ? tile_ends[t - distance] : 0;
    __syncthreads();
    row_ends[t] += more_rows;
    tile_ends[t] += more_tiles;
  }
  __syncthreads();
  if (t < experts) {
    places.starts[t + 1] = row_ends[t];
    places.row_tiles[t + 1] = tile_ends[t];
  }
  if (t == 0) places.starts[0] = places.row_tiles[0] = 0;
  counts[t] = row_ends[t] - rows;
  __syncthreads();
  for (int i = t; i < choices; i += kMaxExperts) {
    const int expert = ids[i] - first;
    const bool here = expert >= 0 && expert < experts;
    const int place = here ? atomicAdd(counts + expert, 1) : -1;
    places.of[i] = place;
    if (here) places.rows_of[place] = i / chosen;
  }
  for (int i = row_ends[kMaxExperts - 1] + t; i < choices; i += kMaxExperts) places.rows_of[i] = -1;
}

struct CombineArgs {
  const float* results;  ///< [places, width]
  const std::int32_t* places;
  const std::int32_t* ids;
  const float* weights;
  float* out;  ///< [rows, width]
  int chosen, width, segments, of_segment, first;
};

/// Each thread computes one element of one row.
__global__ void __launch_bounds__(kThreads) combine_kernel(const CombineArgs args) {
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  if (i >= args.width) return;
  const std::size_t of_row = static_cast<std::size_t>(blockIdx.x) * args.chosen;
  constexpr int kLevels = tree_levels(kMaxLinearSegments) + 1;
  float waiting[kLevels] = {};  // by level of the tree, until the neighbour's sum is there
  float sum = 0;
  int choice = 0;
  for (int segment = 0; segment < args.segments; ++segment) {
    const int end = args.first + (segment + 1) * args.of_segment;
    sum = 0;
    for (; choice < args.chosen && args.ids[of_row + choice] < end; ++choice) {
      const int place = args.places[of_row + choice];
      if (place < 0) continue;
      sum = __fmaf_rn(args.weights[of_row + choice],
                      args.results[static_cast<std::size_t>(place) * args.width + i], sum);
    }
    bool climbing = true;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      const bool neighbour = (segment >> level & 1) != 0;
      if (climbing && neighbour) {
        sum = waiting[level] + sum;
      } else if (climbing) {
        waiting[level] = sum;
      }
      climbing = climbing && neighbour;
    }
  }
  args.out[static_cast<std::size_t>(blockIdx.x) * args.width + i] = sum;
}

__global__ void __launch_bounds__(kThreads)
    add_gated_kernel(float* x, const float* delta, const float* gates, int width) {
  const int i = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  if (i >= width) return;
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * width + i;
  if (gates == nullptr) {
    x[at] += delta[at];
    return;
  }
  const float scale = __fdiv_rn(1.0F, 1.0F + exponential(-gates[blockIdx.x]));
  x[at] = __fmaf_rn(scale, delta[at], x[at]);
}

dim3 elements_of(int rows, int width) {
  return {static_cast<unsigned>(rows), static_cast<unsigned>((width + kThreads - 1) / kThreads), 1};
}

}  // namespace

void choose_experts(const float* logits, int rows, const Routing& routing,
                    const ExpertChoices& choices, cudaStream_t stream) {
  if (rows == 0) return;
  constexpr int kRows = kThreads / kWarp;
  launch(choose_kernel, dim3(static_cast<unsigned>((rows + kRows - 1) / kRows)), dim3(kThreads),
         routing.groups > 1 ? kRows * routing.groups * sizeof(float) : 0, stream, logits, rows,
         routing, choices.chosen, choices.given, choices.ids, choices.weights);
}

void store_experts(const ExpertChoices& choices, int first, const KvShape& kv, std::byte* cache,
                   const std::int32_t* positions, const std::int64_t* slots, int rows,
                   cudaStream_t stream) {
  if (rows == 0 || kv.routed == 0) return;
  const int all = rows * choices.chosen;
  launch(store_kernel, dim3(static_cast<unsigned>((all + kThreads - 1) / kThreads)), dim3(kThreads),
         0, stream, choices.ids, choices.chosen, first, routing_places(kv, cache), positions, slots,
         rows);
}

void compute_experts(const DeviceExperts& bank, const ExpertChoices& choices, const std::byte* in,
                     int rows, std::byte* starts, std::byte* work, float* out,
                     const LinearDevice& device, cudaStream_t stream) {
  const int hidden = bank.down.n;
  const DType dtype = bank.down.dtype;
  const int most = rows * choices.chosen;
  const ExpertWork buffers(work, rows, hidden, bank.down.k, choices.chosen, dtype);
  auto* const first = reinterpret_cast<int*>(starts);
  const ExpertPlaces places{first, first + kMaxExperts + 1, buffers.places, buffers.rows_of};
  const ExpertPlans plans = plan_experts(bank.gate_up, bank.down, most, bank.count, device);
  const int tile_rows = tile_traits()[plans.gate_up.shape].rows;

  launch(place_kernel, dim3(1), dim3(kMaxExperts), 3 * kMaxExperts * sizeof(int), stream,
         choices.ids, most, choices.chosen, bank.first, bank.count, tile_rows, places);
  gather_rows(in, buffers.rows_of, most, hidden * size_of(dtype), buffers.rows_in, stream);
  multiply_experts(plans.gate_up, bank.gate_up, bank.gate_ups, bank.count, places, buffers.rows_in,
                   most, buffers.gated, stream);
  multiply_experts(plans.down, bank.down, bank.downs, bank.count, places, buffers.gated, most,
                   buffers.results, stream);
  launch(
      combine_kernel, elements_of(rows, hidden), dim3(kThreads), 0, stream,
      CombineArgs{buffers.results, buffers.places, choices.ids, choices.weights, out,
                  choices.chosen, hidden, bank.segments, bank.count / bank.segments, bank.first});
}

void add_gated(float* x, const float* delta, const float* gates, int rows, int width,
               cudaStream_t stream) {
  if (rows == 0) return;
  launch(add_gated_kernel, elements_of(rows, width), dim3(kThreads), 0, stream, x, delta, gates,
         width);
}

}  // namespace paceline::kernels::cuda
