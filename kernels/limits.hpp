// Sizes that the kernels are written for. Constants alone: the sources of single instruction sets
// include this.
#pragma once

#include <cstddef>

namespace paceline::kernels {

/// Heads that attention takes, in elements: multiples of the step, up to the largest.
inline constexpr int kHeadDimStep = 8;
inline constexpr int kMaxHeadDim = 256;

namespace cuda {

/// Bytes of shared memory that a block of threads may have on the least of the devices that are
/// supported: compute capabilities 8.6, 8.9 and 12.0.
inline constexpr int kLeastBlockShared = 99 * 1024;
/// Device memory for the states of attention's splits, of an owner of passes: rows whose contexts
/// have more in all fold them one after the other, for which each needs one state. A context of
/// 128 K by itself takes 7 MB of it, where 28 heads have 128 elements and a split 256 positions;
/// what more there is lets larger batches keep every multiprocessor at work.
inline constexpr std::size_t kAttentionWorkspaceBytes = std::size_t{64} << 20;
/// Bytes of one state, of a row: its values, maximum and sum, in fp32, for each query head.
[[nodiscard]] constexpr std::size_t attention_state_bytes(int heads, int head_dim) {
  return static_cast<std::size_t>(heads) * (head_dim + 2) * sizeof(float);
}

/// Widest row of add_rmsnorm(), which keeps it in registers.
inline constexpr int kMaxNormWidth = 32768;
/// Most pairs of a row and a query head that attention takes as one item.
[[nodiscard]] constexpr int max_pairs(int head_dim) { return head_dim <= 128 ? 64 : 32; }

}  // namespace cuda
}  // namespace paceline::kernels
