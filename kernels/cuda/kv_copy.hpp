// Moving KV within the pool, and whole blocks between the pool and contiguous memory. Pointers are
// to device memory. Layout of the pool: kv_layout.cuh.
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

/// to[i] = block blocks[i] of the pool. to: [count] blocks, one behind the other, aligned to 16
/// bytes.
void gather_blocks(const KvShape& kv, const std::byte* cache, const std::int32_t* blocks, int count,
                   std::byte* to, cudaStream_t stream);
/// The way back: block blocks[i] of the pool = from[i].
void scatter_blocks(const KvShape& kv, std::byte* cache, const std::int32_t* blocks, int count,
                    const std::byte* from, cudaStream_t stream);

/// A move and, on the first of moves that must run one after the other, how many they are (0 on the
/// rest, which follow it).
struct GroupedMove {
  Backend::SlotMove move;
  std::int32_t group = 0;
};

/// The moves by groups that have no slot in common, in their order within each.
[[nodiscard]] std::vector<GroupedMove> grouped(std::span<const Backend::SlotMove> moves);

/// Copies k and v of single positions, all layers: groups at once, the moves of each one after the
/// other. moves: [count].
void move_slots(const KvShape& kv, std::byte* cache, const GroupedMove* moves, int count,
                cudaStream_t stream);

}  // namespace paceline::kernels::cuda
