// Common parts of the attention kernels: arguments, addresses of keys, and the merge of splits'
// states into a result.
#pragma once

#include <cuda_bf16.h>

#include <type_traits>

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/launch.hpp"

namespace paceline::kernels::cuda {

struct AttentionArgs {
  const std::int32_t* plan;                ///< AttentionPlan::words
  std::size_t first_item;                  ///< word of the plan at which this launch's items begin
  const std::byte* keys;                   ///< keys of the layer's first kv head in block 0
  std::size_t values;                      ///< bytes from a kv head's keys to its values
  std::size_t kv_head;                     ///< bytes between two kv heads
  std::uint32_t block;                     ///< positions of a KV block
  std::uint32_t block_magic, block_shift;  ///< for division by `block`
  std::uint32_t block_rows;                ///< from one KV block to the next, in row_bytes
  std::uint32_t row_bytes;                 ///< bytes of a position's keys
  const std::byte* q;                      ///< [rows][heads][head_dim]
  std::byte* out;                          ///< [rows][heads][head_dim]
  float* states;                           ///< [slots][heads][head_dim + 2]
  unsigned* arrivals;                      ///< AttentionWorkspace::arrivals
  int heads;
  int kv_heads;
  int group;  ///< query heads that share a kv head
  int head_dim;
  float scale;  ///< log2(e) / sqrt(head_dim)
};

inline constexpr std::uint32_t kNoKey = 0xFFFFFFFFU;

/// A row and a query head that uses the item's kv head.
struct AttentionPair {
  int row_head;  ///< row * heads + head; -1: none
  int position;  ///< last position that it sees; -1: none
  int slot;      ///< AttentionRow::slot
};

inline constexpr float kNothingSeen = -__builtin_inff();

/// The kv head for which a block works. Grid: kv heads of the first item, of the second, ... So the
/// longest items begin first, and kv heads that are neighbours in a KV block are read at about the
/// same time.
__device__ __forceinline__ int kv_head_of_block(const AttentionArgs& args) {
  return static_cast<int>(blockIdx.x) % args.kv_heads;
}
__device__ __forceinline__ AttentionItem item_of_block(const AttentionArgs& args) {
  return reinterpret_cast<const AttentionItem*>(
      args.plan + args.first_item)[static_cast<int>(blockIdx.x) / args.kv_heads];
}

__device__ __forceinline__ AttentionPair attention_pair(const AttentionArgs& args,
                                                        const AttentionItem& item, int pair) {
  const int index = pair / args.group;
  if (index >= item.rows) return {-1, -1, -1};
  const AttentionRow row = reinterpret_cast<const AttentionRow*>(args.plan + item.first_row)[index];
  const int head = kv_head_of_block(args) * args.group + pair % args.group;
  return {row.row * args.heads + head, row.position, row.slot};
}

/// Returns the address of a position's keys, in rows from args.keys, or kNoKey if no row sees the
/// position.
__device__ __forceinline__ std::uint32_t key_address(const AttentionArgs& args,
                                                     const AttentionItem& item, int position) {
  if (position > item.last_position) return kNoKey;
  const bool on_path = item.path != 0 && position >= item.path_base;
  const std::uint32_t at = on_path ? args.plan[item.path + position - item.path_base] : position;
  const std::uint32_t block = (__umulhi(at, args.block_magic) + at) >> args.block_shift;
  return args.plan[item.table + block] * args.block_rows + (at - block * args.block);
}

/// Returns the state of a (row, head) in the workspace: head_dim values, then maximum and sum.
__device__ __forceinline__ float* attention_state(const AttentionArgs& args, int slot, int head) {
  return args.states + (static_cast<std::size_t>(slot) * args.heads + head) * (args.head_dim + 2);
}

/// Factors by which the state of the splits so far and the state of the next split are multiplied
/// before they are added, and the maximum and sum of both.
struct Fold {
  float maximum, sum;
  float before, next;
};
__device__ __forceinline__ Fold fold(float scale, float maximum, float sum, float next_maximum,
                                     float next_sum) {
  Fold f;
  f.maximum = fmaxf(maximum, next_maximum);
  f.before = exp2f((maximum - f.maximum) * scale);
  f.next = exp2f((next_maximum - f.maximum) * scale);
  f.sum = __fmaf_rn(sum, f.before, next_sum * f.next);
  return f;
}
__device__ __forceinline__ float fold_value(const Fold& f, float before, float next) {
  return __fmaf_rn(before, f.before, next * f.next);
}

/// The softmax's result. Adding +0 makes a zero positive. Otherwise the zero's sign could depend on
/// how many unseen positions were added.
__device__ __forceinline__ float attention_result(float value, float inverse_sum) {
  return value * inverse_sum + 0.0F;
}

/// Folds the states of a pair's splits in ascending order, and writes the pair's result. A whole
/// warp runs it.
template <class T>
__device__ __forceinline__ void merge_splits(const AttentionArgs& args, const AttentionPair& pair) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int head = pair.row_head % args.heads;
  constexpr int kMost = kMaxHeadDim / 64;  // pairs of values in a lane
  float values[kMost][2];
  float maximum = 0;
  float sum = 0;
  // All loads of four splits are issued before any is used, because a load takes as long as folding
  // several splits. For this the loads are unconditional: past the last split, the last one is
  // loaded again and dropped.
  constexpr int kAtOnce = 4;
  const int last = pair.position / kAttentionSplit;
  for (int first = 0; first <= last; first += kAtOnce) {
    float2 ends[kAtOnce];
    float2 loaded[kAtOnce][kMost];
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      const float* state = attention_state(args, pair.slot + min(first + s, last), head);
      ends[s] = __ldcg(reinterpret_cast<const float2*>(state + args.head_dim));
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        const int column = (i * 32 + lane) * 2;
        loaded[s][i] = column < args.head_dim
                           ? __ldcg(reinterpret_cast<const float2*>(state + column))
                           : make_float2(0, 0);
      }
    }
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      const int split = first + s;
      if (split > last) break;
      Fold f{ends[s].x, ends[s].y, 0, 0};
      if (split > 0) f = fold(args.scale, maximum, sum, ends[s].x, ends[s].y);
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        values[i][0] = split == 0 ? loaded[s][i].x : fold_value(f, values[i][0], loaded[s][i].x);
        values[i][1] = split == 0 ? loaded[s][i].y : fold_value(f, values[i][1], loaded[s][i].y);
      }
      maximum = f.maximum;
      sum = f.sum;
    }
  }
  const float inverse = 1.0F / sum;
  const std::size_t at = static_cast<std::size_t>(pair.row_head) * args.head_dim;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int column = (i * 32 + lane) * 2;
    if (column >= args.head_dim) break;
    const float x = attention_result(values[i][0], inverse);
    const float y = attention_result(values[i][1], inverse);
    if constexpr (std::is_same_v<T, float>) {
      reinterpret_cast<float2*>(args.out)[(at + column) / 2] = make_float2(x, y);
    } else {
      reinterpret_cast<__nv_bfloat162*>(args.out)[(at + column) / 2] = __floats2bfloat162_rn(x, y);
    }
  }
}

/// Counts an item for its rows that have several splits, once all threads of its block have stored
/// their states, and merges the rows for which it was the last item. The result does not depend on
/// which item is the last. pairs: the item's pairs, in shared memory; last: shared memory, with
/// room for the item's rows.
template <class T>
__device__ __forceinline__ void merge_ended_rows(const AttentionArgs& args,
                                                 const AttentionItem& item,
                                                 const AttentionPair* pairs, int* last) {
  if (item.end != AttentionEnd::split) return;
  const int thread = static_cast<int>(threadIdx.x);
  AttentionPair mine{-1, -1, -1};
  if (thread < item.rows) mine = pairs[thread * args.group];
  const bool counted = mine.position >= kAttentionSplit;
  if (__syncthreads_or(counted ? 1 : 0) == 0) return;
  __threadfence();
  __syncthreads();
  if (thread < item.rows) {
    last[thread] = 0;
    if (counted) {
      unsigned* arrivals =
          args.arrivals + mine.row_head / args.heads * args.kv_heads + kv_head_of_block(args);
      const unsigned others = mine.position / kAttentionSplit;
      if (atomicAdd(arrivals, 1U) == others) {
        last[thread] = 1;
        *arrivals = 0;  // for the next layer and the next pass
      }
      __threadfence();
    }
  }
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / 32;
  for (int pair = thread / 32; pair < item.rows * args.group; pair += warps) {
    if (last[pair / args.group] != 0) merge_splits<T>(args, pairs[pair]);
  }
}

/// Launches attention. block_shared: bytes of shared memory that the device gives a block.
void launch_attention_bf16(const AttentionArgs& args, int items, bool narrow, int block_shared,
                           cudaStream_t stream);
void launch_attention_f32(const AttentionArgs& args, int items, cudaStream_t stream);

}  // namespace paceline::kernels::cuda
