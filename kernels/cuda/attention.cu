// Launches the kernels of attention and merges the states of splits.
#include "kernels/cuda/attention.hpp"

#include <bit>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/attention_parts.cuh"
#include "kernels/cuda/kv_layout.cuh"

namespace paceline::kernels::cuda {
namespace {

constexpr int kMergeWarps = 4;  // each for one (row, head)

/// Folds the states of a row's splits in ascending order. Grid: (rows, heads / kMergeWarps).
template <class T>
__global__ void __launch_bounds__(kMergeWarps * 32)
    merge_splits(const AttentionArgs args, std::size_t first_row) {
  const AttentionRow row = reinterpret_cast<const AttentionRow*>(args.plan + first_row)[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y * kMergeWarps + threadIdx.x / 32);
  if (row.row < 0 || head >= args.heads) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  constexpr int kMost = 256 / 64;  // pairs of values of a lane
  float values[kMost][2];
  float maximum = 0;
  float sum = 0;
  for (int split = 0; split <= row.position / kAttentionSplit; ++split) {
    const float* state = attention_state(args, row.slot + split, head);
    const float next_maximum = state[args.head_dim];
    const float next_sum = state[args.head_dim + 1];
    Fold f{next_maximum, next_sum, 0, 0};
    if (split > 0) f = fold(args.scale, maximum, sum, next_maximum, next_sum);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int column = (i * 32 + lane) * 2;
      if (column >= args.head_dim) break;
      const float2 next = *reinterpret_cast<const float2*>(state + column);
      values[i][0] = split == 0 ? next.x : fold_value(f, values[i][0], next.x);
      values[i][1] = split == 0 ? next.y : fold_value(f, values[i][1], next.y);
    }
    maximum = f.maximum;
    sum = f.sum;
  }
  const float inverse = 1.0F / sum;
  const std::size_t at = (static_cast<std::size_t>(row.row) * args.heads + head) * args.head_dim;
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

}  // namespace

void attention(const QkvParams& params, const KvShape& kv, int layer, const std::byte* cache,
               const AttentionGrid& grid, const std::int32_t* plan, const std::byte* q,
               std::byte* out, float* workspace, int block_shared, cudaStream_t stream) {
  const KvStrides strides = strides_of(kv);
  const auto size = static_cast<std::int64_t>(size_of(kv.dtype));
  const auto block = static_cast<std::uint32_t>(kv.block);
  AttentionArgs args{};
  args.plan = plan;
  args.keys = cache + layer * strides.layer * size;
  args.kv_head = strides.head * size;
  args.values = strides.value * size;
  // n / block = (n * magic / 2^32 + n) / 2^shift for all n below 2^31.
  args.block = block;
  args.block_shift = std::bit_width(block - 1);
  args.block_magic = static_cast<std::uint32_t>(
      (((std::uint64_t{1} << args.block_shift) - block) << 32) / block + 1);
  args.block_rows = static_cast<std::uint32_t>(strides.block / strides.head_dim);
  args.row_bytes = static_cast<std::uint32_t>(strides.head_dim * size);
  args.q = q;
  args.out = out;
  args.states = workspace;
  args.heads = params.heads;
  args.kv_heads = params.kv_heads;
  args.group = params.heads / params.kv_heads;
  args.head_dim = kv.head_dim;
  args.scale = static_cast<float>(std::log2(std::exp(1.0)) / std::sqrt(kv.head_dim));

  std::size_t first_item = 0;
  for (const int items : grid.items) {
    args.first_item = first_item;
    first_item += items * (sizeof(AttentionItem) / 4);
    if (items == 0) continue;
    if (kv.dtype == DType::bf16) {
      launch_attention_bf16(args, items, grid.narrow, block_shared, stream);
    } else {
      launch_attention_f32(args, items, stream);
    }
  }
  if (grid.merged_rows == 0) return;
  const dim3 merge_grid(grid.merged_rows, (params.heads + kMergeWarps - 1) / kMergeWarps);
  const auto merge = kv.dtype == DType::bf16 ? merge_splits<__nv_bfloat16> : merge_splits<float>;
  launch(merge, merge_grid, dim3(kMergeWarps * 32), 0, stream, args, first_item);
}

}  // namespace paceline::kernels::cuda
