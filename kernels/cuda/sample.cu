#include "kernels/cuda/sample.hpp"

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/sample_filter.cuh"
#include "kernels/cuda/sample_row.cuh"

namespace paceline::kernels::cuda {
namespace {

constexpr int kSpanThreads = 256;
constexpr int kSpanWarps = kSpanThreads / kWarp;
constexpr int kPerThread = kSpan / kSpanThreads;
/// Number of threads for a row's filters. The results do not depend on it.
constexpr int kRowThreads = 1024;
constexpr int kSmallRowThreads = 256;
constexpr int kSmallVocab = 8192;

// ---- scan_spans --------------------------------------------------------------------------------

struct ScanShared {
  float s[kSpan];
  float chunk_max[kSpanChunks];
  float sums[kWarp];
};

/// Fills shared.chunk_max. Returns the span's largest s and its sum of exp(s - largest). Thread t
/// sums tokens 4 (t + 256 i) + j in the order of (i, j).
__device__ __forceinline__ float2 sum_span(ScanShared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  float s[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread / 4; ++i) {
    const int at = thread + i * kSpanThreads;
    const float4 four = reinterpret_cast<const float4*>(shared.s)[at];
    s[4 * i] = four.x, s[4 * i + 1] = four.y, s[4 * i + 2] = four.z, s[4 * i + 3] = four.w;
    float largest = fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w));
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    }
    if (thread % 16 == 0) shared.chunk_max[at / 16] = largest;
  }
  __syncthreads();
  const int lane = thread % kWarp;
  float largest = fmaxf(shared.chunk_max[lane], shared.chunk_max[lane + kWarp]);
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
  }
  float sum = 0;
  if (largest > -INFINITY) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) sum += exponential(s[i] - largest);
  }
  return make_float2(largest, block_sum(sum, shared.sums));
}

/// Scans one span in each block (x: span, y: row).
__global__ void __launch_bounds__(kSpanThreads)
    scan_spans(SampleInput in, SampleWorkspace workspace, int spans) {
  auto& shared = *reinterpret_cast<ScanShared*>(dynamic_shared());
  const DeviceSampleRow row = in.sampled.rows[blockIdx.y];
  const float* logits = in.logits + blockIdx.y * in.stride;
  const int thread = static_cast<int>(threadIdx.x);
  const int begin = static_cast<int>(blockIdx.x) * kSpan;
  const float scale = scale_of(row);
  const bool aligned = reinterpret_cast<std::uintptr_t>(logits) % 16 == 0;
  int bad = 0;
#pragma unroll
  for (int i = 0; i < kPerThread / 4; ++i) {
    const int at = 4 * (thread + i * kSpanThreads);
    const int left = in.vocab - (begin + at);
    float x[4];
    if (aligned && left >= 4) {
      load4<true>(logits + begin + at, 4, x);
    } else {
      load4<false>(logits + begin + at, left, x);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      x[j] = j < left ? __fmul_rn(x[j], scale) : -INFINITY;
      if (isnan(x[j]) || x[j] == INFINITY) bad = 1;
    }
    store4<true>(shared.s + at, 4, x);
  }
  bad = __syncthreads_or(bad);
  const float2 full = sum_span(shared);
  const int first_edit = edits_below(in, row, begin);
  const int last_edit = edits_below(in, row, min(begin + kSpan, in.vocab));
  const LogitEdit* edits = in.sampled.edits + row.first_edit;
  for (int i = first_edit + thread; i < last_edit; i += kSpanThreads)
    shared.s[edits[i].token - begin] = __fmul_rn(edited(edits[i], logits[edits[i].token]), scale);
  __syncthreads();
  const int last = banned_below(in, row, begin + kSpan);
  const int first = banned_below(in, row, begin);
  for (int i = first + thread; i < last; i += kSpanThreads)
    shared.s[in.sampled.banned[row.first_banned + i] - begin] = -INFINITY;
  __syncthreads();
  for (int i = first_edit + thread; i < last_edit; i += kSpanThreads) {
    const float s = shared.s[edits[i].token - begin];
    if (isnan(s) || s == INFINITY) bad = 1;
  }
  bad = __syncthreads_or(bad);
  const float2 allowed = first < last || first_edit < last_edit ? sum_span(shared) : full;
  const std::size_t span = static_cast<std::size_t>(blockIdx.y) * spans + blockIdx.x;
  if (thread == 0) workspace.sums[span] = {full.x, full.y, allowed.x, allowed.y, bad};
  if (thread < kSpanChunks) {
    workspace.chunk_max[span * kSpanChunks + thread] = shared.chunk_max[thread];
  }
}

// ---- prepare_rows ------------------------------------------------------------------------------

struct RowShared {
  FilterShared filter;
  RowState state;
  Key keys[kWarp];
};

__device__ __forceinline__ float warp_largest(float x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  }
  return x;
}
__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}

/// Joins the spans' sums with one warp: lane l joins the sums of spans l, l + 32, ..., then the
/// lanes are joined.
__device__ __forceinline__ void join_spans(const SpanSums* sums, int spans, RowState& state) {
  const int lane = static_cast<int>(threadIdx.x);
  float full_max = -INFINITY;
  float allowed_max = -INFINITY;
  int bad = 0;
  for (int i = lane; i < spans; i += kWarp) {
    full_max = fmaxf(full_max, sums[i].full_max);
    allowed_max = fmaxf(allowed_max, sums[i].allowed_max);
    bad |= sums[i].bad;
  }
  full_max = warp_largest(full_max);
  allowed_max = warp_largest(allowed_max);
  bad = __any_sync(kAllLanes, bad);
  double full = 0;
  double allowed = 0;
  for (int i = lane; i < spans; i += kWarp) {
    const SpanSums span = sums[i];
    if (span.full_sum > 0) {
      full += span.full_sum * exp(static_cast<double>(span.full_max) - full_max);
    }
    if (span.allowed_sum > 0) {
      allowed += span.allowed_sum * exp(static_cast<double>(span.allowed_max) - allowed_max);
    }
  }
  full = warp_sum(full);
  allowed = warp_sum(allowed);
  if (lane == 0) {
    state.full_sum = full;
    state.kept_sum = allowed;
    state.full_max = full_max;
    state.allowed_max = allowed_max;
    state.keep_value = -INFINITY;
    state.keep_id = -1;
    state.floor = -INFINITY;
    state.fault = bad != 0 || allowed_max == -INFINITY ? 1 : 0;
  }
}

/// Prepares one row in each block.
__global__ void __launch_bounds__(kRowThreads)
    prepare_rows(SampleInput in, SampleWorkspace workspace, int spans, int best) {
  auto& shared = *reinterpret_cast<RowShared*>(dynamic_shared());
  RowState& state = shared.state;
  const DeviceSampleRow row = in.sampled.rows[blockIdx.x];
  const float* logits = in.logits + blockIdx.x * in.stride;
  const float* chunk_max =
      workspace.chunk_max + static_cast<std::size_t>(blockIdx.x) * spans * kSpanChunks;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kWarp) {
    join_spans(workspace.sums + static_cast<std::size_t>(blockIdx.x) * spans, spans, state);
  }
  if (thread == 0) state.scale = scale_of(row);
  __syncthreads();
  if (state.fault != 0) {
    if (thread == 0) workspace.states[blockIdx.x] = state;
    return;
  }
  if (row.temperature > 0.0F && (row.top_k > 0 || row.top_p < 1.0F || row.min_p > 0.0F)) {
    const Filter filter = {in,           row, logits, chunk_max, state.scale, state.allowed_max,
                           shared.filter};
    apply_filters(filter, state);
  }

  // Scores of the chunk with the largest logit give a first bound.
  Key largest = 0;
  for (int i = thread; i < spans * kSpanChunks; i += static_cast<int>(blockDim.x)) {
    const Key key = key_of(chunk_max[i], i);
    if (key > largest) largest = key;
  }
  largest = warp_max(largest);
  if (thread % kWarp == 0) shared.keys[thread / kWarp] = largest;
  __syncthreads();
  if (thread >= kWarp) return;
  largest = warp_max(thread < static_cast<int>(blockDim.x) / kWarp ? shared.keys[thread] : 0);
  Key keys[4];
  score_chunk(in, row, logits, state, thread < 16 ? id_of(largest) : -1, value_of(largest), keys);
  Key last = ~Key{0};
  for (int i = 0; i < best && last != 0; ++i) last = warp_max(best_below(keys, last));
  if (thread == 0) {
    if (last != 0) state.floor = value_of(last);
    workspace.states[blockIdx.x] = state;
  }
}

// ---- score_spans -------------------------------------------------------------------------------

struct ScoreShared {
  Key lists[kSpanWarps][kMaxRanked];
};

/// Scores one span in each block (x: span, y: row). Half-warps take the span's chunks in turn.
__global__ void __launch_bounds__(kSpanThreads)
    score_spans(SampleInput in, SampleWorkspace workspace, int spans, int best) {
  constexpr int kHalves = kSpanThreads / 16;
  constexpr int kTurns = kSpanChunks / kHalves;
  auto& shared = *reinterpret_cast<ScoreShared*>(dynamic_shared());
  const RowState state = workspace.states[blockIdx.y];
  if (state.fault != 0) return;
  const DeviceSampleRow row = in.sampled.rows[blockIdx.y];
  const float* logits = in.logits + blockIdx.y * in.stride;
  const std::size_t span = static_cast<std::size_t>(blockIdx.y) * spans + blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  Key keys[4 * kTurns];
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int chunk = turn * kHalves + thread / 16;
    Key scores[4];
    score_chunk(in, row, logits, state, static_cast<int>(blockIdx.x) * kSpanChunks + chunk,
                workspace.chunk_max[span * kSpanChunks + chunk], scores);
#pragma unroll
    for (int j = 0; j < 4; ++j) keys[4 * turn + j] = scores[j];
  }
  Key* out = workspace.keys + span * best;
  if (__syncthreads_or(best_below(keys, ~Key{0}) != 0 ? 1 : 0) == 0) {
    if (thread < best) out[thread] = 0;
    return;
  }
  Key last = ~Key{0};
  for (int i = 0; i < best; ++i) {
    last = warp_max(best_below(keys, last));
    if (lane == 0) shared.lists[thread / kWarp][i] = last;
  }
  __syncthreads();
  if (thread >= kWarp) return;
  Key heads[kSpanWarps];  // lane l has place l in every list
#pragma unroll
  for (int w = 0; w < kSpanWarps; ++w) heads[w] = lane < best ? shared.lists[w][lane] : 0;
  last = ~Key{0};
  for (int i = 0; i < best; ++i) {
    last = warp_max(best_below(heads, last));
    if (lane == 0) out[i] = last;
  }
}

// ---- the last kernels --------------------------------------------------------------------------

/// Returns the largest of a row's keys below `before`; one warp runs it.
__device__ __forceinline__ Key next_best(const Key* keys, int count, Key before) {
  Key best = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kWarp) {
    const Key key = keys[i];
    if (key < before && key > best) best = key;
  }
  return warp_max(best);
}

__device__ __forceinline__ float log_probability(float s, float max, double sum) {
  return static_cast<float>(static_cast<double>(s) - static_cast<double>(max) - log(sum));
}

/// Writes a row's sample; one warp runs it.
__global__ void write_samples(SampleInput in, SampleWorkspace workspace, int spans, Sampled* out) {
  const RowState state = workspace.states[blockIdx.x];
  if (state.fault != 0) {
    if (threadIdx.x == 0) out[blockIdx.x] = {kSampleFault, 0, 0, 0};
    return;
  }
  const Key key =
      next_best(workspace.keys + static_cast<std::size_t>(blockIdx.x) * spans, spans, ~Key{0});
  if (threadIdx.x != 0) return;
  const DeviceSampleRow row = in.sampled.rows[blockIdx.x];
  const bool greedy = row.temperature == 0.0F;
  Sampled sampled;
  sampled.token = row.given < 0 ? id_of(key) : row.given;
  const float logit = in.logits[blockIdx.x * in.stride + static_cast<std::size_t>(sampled.token)];
  sampled.logprob = log_probability(__fmul_rn(logit, state.scale), state.full_max, state.full_sum);
  const float s = __fmul_rn(after_edits(in, row, sampled.token, logit), state.scale);
  const bool possible =
      row.given < 0 || (greedy ? row.given == id_of(key)
                               : is_kept(state, s, row.given) && !is_banned(in, row, row.given));
  sampled.sampling_logprob = !possible ? -INFINITY
                             : greedy  ? 0.0F
                                       : log_probability(s, state.allowed_max, state.kept_sum);
  sampled.kept = 0;
  out[blockIdx.x] = sampled;
}

/// Writes the tokens that a row can sample, in ascending order; one block runs it, after
/// write_samples. In each turn, the threads take neighbours. The tokens of a turn come after the
/// tokens of earlier turns.
__global__ void __launch_bounds__(kRowThreads)
    write_kept(SampleInput in, SampleWorkspace workspace, int spans, KeptOutput kept,
               Sampled* out) {
  auto& before = *reinterpret_cast<int(*)[kWarp]>(dynamic_shared());  // each warp's in this turn
  const RowState state = workspace.states[blockIdx.x];
  if (state.fault != 0) return;
  const DeviceSampleRow row = in.sampled.rows[blockIdx.x];
  const float* logits = in.logits + blockIdx.x * in.stride;
  const float* chunk_max =
      workspace.chunk_max + static_cast<std::size_t>(blockIdx.x) * spans * kSpanChunks;
  TokenId* ids = kept.ids + static_cast<std::size_t>(blockIdx.x) * kept.most;
  const int thread = static_cast<int>(threadIdx.x);
  if (row.temperature == 0.0F) {
    if (thread == 0) {
      ids[0] = out[blockIdx.x].token;
      out[blockIdx.x].kept = 1;
    }
    return;
  }
  int written = 0;
  for (int first = 0; first < in.vocab; first += static_cast<int>(blockDim.x)) {
    const int token = first + thread;
    bool is = token < in.vocab && chunk_max[token / kChunk] >= state.keep_value;
    if (is) {
      const float s = __fmul_rn(after_edits(in, row, token, logits[token]), state.scale);
      is = s > -INFINITY && is_kept(state, s, token) && !is_banned(in, row, token);
    }
    const int here = __syncthreads_count(is ? 1 : 0);
    if (here == 0) continue;
    const unsigned mask = __ballot_sync(kAllLanes, is ? 1 : 0);
    if (thread % kWarp == 0) before[thread / kWarp] = __popc(mask);
    __syncthreads();
    int place = written + __popc(mask & ((1U << (thread % kWarp)) - 1U));
    for (int i = 0; i < thread / kWarp; ++i) place += before[i];
    if (is && place < kept.most) ids[place] = token;
    written += here;
    __syncthreads();  // the next turn overwrites memory that this one reads
  }
  if (thread == 0) out[blockIdx.x].kept = written;
}

/// Writes a row's ranking; one warp runs it.
__global__ void write_ranks(SampleWorkspace workspace, int spans, int best, RankedAs as,
                            Ranked* out) {
  out += static_cast<std::size_t>(blockIdx.x) * best;
  const RowState state = workspace.states[blockIdx.x];
  const bool fault = state.fault != 0;
  const Key* keys = workspace.keys + static_cast<std::size_t>(blockIdx.x) * spans * best;
  Key last = fault ? 0 : ~Key{0};
  for (int i = 0; i < best; ++i) {
    if (last != 0) last = next_best(keys, spans * best, last);
    if (threadIdx.x != 0) continue;
    out[i] = {-1, -INFINITY};
    if (last == 0) continue;
    const float value = value_of(last);
    out[i] = {id_of(last), as == RankedAs::score
                               ? value
                               : log_probability(value, state.full_max, state.full_sum)};
  }
  if (fault && threadIdx.x == 0) out[0].token = kRankFault;
}

// ---- host --------------------------------------------------------------------------------------

template <class T>
T* take(std::byte*& at, std::size_t count) {
  T* const taken = reinterpret_cast<T*>(at);
  at += (count * sizeof(T) + 15) / 16 * 16;
  return taken;
}

/// Divides memory from `base` on into the parts of the workspace. `end`: the end of the workspace.
SampleWorkspace cut(std::byte* base, int rows, int spans, int best, std::byte*& end) {
  const std::size_t all = static_cast<std::size_t>(rows) * spans;
  SampleWorkspace workspace;
  end = base;
  workspace.states = take<RowState>(end, static_cast<std::size_t>(rows));
  workspace.keys = take<Key>(end, all * best);
  workspace.sums = take<SpanSums>(end, all);
  workspace.chunk_max = take<float>(end, all * kSpanChunks);
  return workspace;
}

/// Runs all kernels except the last.
SampleWorkspace find_best(const SampleInput& in, int best, std::byte* memory, cudaStream_t stream) {
  const int count = in.sampled.count;
  const int spans = spans_of(in.vocab);
  std::byte* end = nullptr;
  const SampleWorkspace workspace = cut(memory, count, spans, best, end);
  const auto rows = static_cast<unsigned>(count);
  const dim3 grid(static_cast<unsigned>(spans), rows);
  launch(scan_spans, grid, kSpanThreads, sizeof(ScanShared), stream, in, workspace, spans);
  launch(prepare_rows, rows,
         static_cast<unsigned>(in.vocab <= kSmallVocab ? kSmallRowThreads : kRowThreads),
         sizeof(RowShared), stream, in, workspace, spans, best);
  launch(score_spans, grid, kSpanThreads, sizeof(ScoreShared), stream, in, workspace, spans, best);
  return workspace;
}

}  // namespace

std::size_t sample_workspace_bytes(int rows, int vocab) {
  std::byte* end = nullptr;
  static_cast<void>(cut(nullptr, rows, spans_of(vocab), kMaxRanked, end));
  return reinterpret_cast<std::uintptr_t>(end);
}

void sample(const float* logits, std::size_t stride, int vocab, const SampleRows& rows,
            std::byte* workspace, Sampled* out, const KeptOutput& kept, cudaStream_t stream) {
  if (rows.count == 0) return;
  const auto count = static_cast<unsigned>(rows.count);
  const SampleInput in = {logits, stride, vocab, rows};
  const SampleWorkspace found = find_best(in, 1, workspace, stream);
  launch(write_samples, count, kWarp, 0, stream, in, found, spans_of(vocab), out);
  if (kept.most == 0) return;
  launch(write_kept, count, static_cast<unsigned>(kRowThreads), sizeof(int) * kWarp, stream, in,
         found, spans_of(vocab), kept, out);
}

void rank(const float* logits, std::size_t stride, int vocab, const SampleRows& rows, int best,
          RankedAs as, std::byte* workspace, Ranked* out, cudaStream_t stream) {
  if (rows.count == 0) return;
  const SampleInput in = {logits, stride, vocab, rows};
  const SampleWorkspace found = find_best(in, best, workspace, stream);
  launch(write_ranks, static_cast<unsigned>(rows.count), kWarp, 0, stream, found, spans_of(vocab),
         best, as, out);
}

}  // namespace paceline::kernels::cuda
