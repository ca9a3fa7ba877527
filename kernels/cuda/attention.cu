// Launches of the attention kernels.
#include "kernels/cuda/attention.hpp"

#include <bit>
#include <cmath>

#include "kernels/cuda/attention_parts.cuh"
#include "kernels/cuda/kv_layout.cuh"

namespace paceline::kernels::cuda {

void attention(const QkvParams& params, const KvShape& kv, int layer, const std::byte* cache,
               const AttentionGrid& grid, const std::int32_t* plan, const std::byte* q,
               std::byte* out, const AttentionWorkspace& workspace, int block_shared,
               cudaStream_t stream) {
  const KvStrides strides = strides_of(kv);
  const auto size = static_cast<std::int64_t>(size_of(kv.dtype));
  const auto block = static_cast<std::uint32_t>(kv.block);
  AttentionArgs args{};
  args.plan = plan;
  args.keys = cache + layer * strides.layer * size;
  args.kv_head = strides.head * size;
  args.values = strides.value * size;
  // Kernels divide by multiplication: n / block = (n * magic / 2^32 + n) / 2^shift for all n below
  // 2^31.
  args.block = block;
  args.block_shift = std::bit_width(block - 1);
  args.block_magic = static_cast<std::uint32_t>(
      (((std::uint64_t{1} << args.block_shift) - block) << 32) / block + 1);
  args.block_rows = static_cast<std::uint32_t>(strides.block / strides.head_dim);
  args.row_bytes = static_cast<std::uint32_t>(strides.head_dim * size);
  args.q = q;
  args.out = out;
  args.states = workspace.states;
  args.arrivals = workspace.arrivals;
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
}

}  // namespace paceline::kernels::cuda
