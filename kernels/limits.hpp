// Sizes that the kernels are written for. Constants alone: the sources of single instruction sets
// include this.
#pragma once

namespace paceline::kernels {

/// Heads that attention takes, in elements: multiples of the step, up to the largest.
inline constexpr int kHeadDimStep = 8;
inline constexpr int kMaxHeadDim = 256;

namespace cuda {

/// Bytes of shared memory that a block of threads may have on the least of the devices that are
/// supported: compute capabilities 8.6, 8.9 and 12.0.
inline constexpr int kLeastBlockShared = 99 * 1024;
/// Widest row of add_rmsnorm(), which keeps it in registers.
inline constexpr int kMaxNormWidth = 32768;
/// Most pairs of a row and a query head that attention takes as one item.
[[nodiscard]] constexpr int max_pairs(int head_dim) { return head_dim <= 128 ? 64 : 32; }

}  // namespace cuda
}  // namespace paceline::kernels
