// Attention over the paged cache by a plan (attention_plan.hpp), one layer at a time.
//
// Arithmetic, with tensor cores where KV is bf16: scores are fp32 sums over the head in steps of
// 16. Weights 2^((score - maximum) * scale * log2 e) are rounded to bf16 before they are summed and
// multiplied with V, so that they add up to their divisor. Sums are fp32. Where KV is fp32, all is
// fp32, with fused multiply-adds.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/backend.hpp"
#include "kernels/cuda/attention_plan.hpp"

namespace paceline::kernels::cuda {

/// Device memory of one owner of passes.
struct AttentionWorkspace {
  /// A state (attention_state_bytes()) for each of the plan's slots, uninitialised.
  float* states = nullptr;
  /// [rows of the batch][kv heads] counters of a row's splits that have ended. Zeros before and
  /// after a pass, so that a captured graph may be replayed. Read only where the plan has slots.
  unsigned* arrivals = nullptr;
};

/// Pointers are to device memory. cache: block 0 of the pool (kv_layout.cuh), of fewer than 2^32
/// rows of head_dim elements: 512 GiB of bf16 where head_dim is 64, 64 GiB where it is 8. plan:
/// AttentionPlan::words; the host knows only its `grid` when a graph is captured. q: [rows, heads *
/// head_dim] of kv.dtype; out the same. block_shared: bytes of shared memory that the device gives
/// a block, at least kLeastBlockShared; more serves speed alone. Rows that the plan does not name
/// stay as they are. Slots that no row of an item sees are not read; k and v of later rows of its
/// segment leave no trace in a row if they are finite.
void attention(const QkvParams& params, const KvShape& kv, int layer, const std::byte* cache,
               const AttentionGrid& grid, const std::int32_t* plan, const std::byte* q,
               std::byte* out, const AttentionWorkspace& workspace, int block_shared,
               cudaStream_t stream);

}  // namespace paceline::kernels::cuda
