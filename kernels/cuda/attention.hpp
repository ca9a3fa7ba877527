// Attention over the paged cache by a plan (attention_plan.hpp), one layer at a time.
//
// Arithmetic, with tensor cores if KV is bf16: scores are fp32 sums over the head in steps of 16.
// Each weight 2^((score - maximum) * scale * log2 e) is rounded to bf16 before it is summed and
// multiplied with V. So the weights of a sum add up to its divisor. Sums are fp32. If KV is fp32,
// everything is computed in fp32, with fused multiply-adds.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/backend.hpp"
#include "kernels/cuda/attention_plan.hpp"

namespace paceline::kernels::cuda {

/// Device memory that belongs to one owner of passes.
struct AttentionWorkspace {
  /// A state (attention_state_bytes()) for each of the plan's slots, uninitialised.
  float* states = nullptr;
  /// [rows of the batch][kv heads] counters: how many of a row's splits have ended. They are zero
  /// before and after a pass, so that a captured graph may be replayed. They are read only if the
  /// plan has slots.
  unsigned* arrivals = nullptr;
};

/// Computes attention for the rows that the plan names; other rows stay as they are. Pointers are
/// to device memory. cache: block 0 of the pool (kv_layout.cuh), of fewer than 2^32 rows of
/// head_dim elements: 512 GiB of bf16 if head_dim is 64, 64 GiB if it is 8. plan:
/// AttentionPlan::words; when a graph is captured, the host knows only the plan's `grid`. q: [rows,
/// heads * head_dim] of kv.dtype; out has the same shape and type. block_shared: bytes of shared
/// memory that the device gives a block, at least kLeastBlockShared; with more, attention is
/// faster, with the same results. Cache slots that no row of an item sees are not read. The k and v
/// of later rows of its segment are read, but do not change a row's result if they are finite.
void attention(const QkvParams& params, const KvShape& kv, int layer, const std::byte* cache,
               const AttentionGrid& grid, const std::int32_t* plan, const std::byte* q,
               std::byte* out, const AttentionWorkspace& workspace, int block_shared,
               cudaStream_t stream);

}  // namespace paceline::kernels::cuda
