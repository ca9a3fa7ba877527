// Copies of KV within the pool.
// Pointers are to device memory. Layout of the pool: kv_layout.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels::cuda {

/// Copies whole blocks; no block may be both read and written. copies: [count].
void copy_blocks(const KvShape& kv, std::byte* cache, const Backend::BlockCopy* copies, int count,
                 cudaStream_t stream);

/// A move of a slot. Moves that must run one after another follow each other as a group. The
/// group's first move has the number of moves as `group`, the rest have 0.
struct GroupedMove {
  Backend::SlotMove move;
  std::int32_t group = 0;
};

/// Returns the moves in groups that have no common slot, each group in the original order.
[[nodiscard]] std::vector<GroupedMove> grouped(std::span<const Backend::SlotMove> moves);

/// Copies k, v and experts of single positions, in all layers. Groups run at once, the moves of one
/// group one after another. moves: [count].
void move_slots(const KvShape& kv, std::byte* cache, const GroupedMove* moves, int count,
                cudaStream_t stream);

}  // namespace paceline::kernels::cuda
