// Copies of KV within the pool, and of whole blocks between the pool and contiguous memory.
// Pointers are to device memory. Layout of the pool: kv_layout.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels::cuda {

/// Copies whole blocks; none may be both read and written. copies: [count].
void copy_blocks(const KvShape& kv, std::byte* cache, const Backend::BlockCopy* copies, int count,
                 cudaStream_t stream);

/// to[i] = block blocks[i] of the pool. to: [count] contiguous blocks, aligned to 16 bytes.
void gather_blocks(const KvShape& kv, const std::byte* cache, const std::int32_t* blocks, int count,
                   std::byte* to, cudaStream_t stream);
/// The inverse: block blocks[i] of the pool = from[i].
void scatter_blocks(const KvShape& kv, std::byte* cache, const std::int32_t* blocks, int count,
                    const std::byte* from, cudaStream_t stream);

/// A move. `group`: on the first of moves that must run one after the other, their number; 0 on the
/// rest, which follow it.
struct GroupedMove {
  Backend::SlotMove move;
  std::int32_t group = 0;
};

/// The moves by groups without a common slot, each in the original order.
[[nodiscard]] std::vector<GroupedMove> grouped(std::span<const Backend::SlotMove> moves);

/// Copies k, v and experts of single positions, all layers: groups at once, the moves of a group
/// one after the other. moves: [count].
void move_slots(const KvShape& kv, std::byte* cache, const GroupedMove* moves, int count,
                cudaStream_t stream);

}  // namespace paceline::kernels::cuda
