// Limits of the kernels. Constants alone: the sources of single instruction sets include this.
#pragma once

#include <cstddef>

namespace paceline::kernels {

/// Head sizes of attention, in elements: multiples of the step, up to the largest. So are the two
/// parts of latent vectors.
inline constexpr int kHeadDimStep = 8;
inline constexpr int kMaxHeadDim = 256;
/// Most elements of a latent vector, and of its values.
inline constexpr int kMaxLatentDim = 576;
inline constexpr int kMaxLatentValues = 512;

namespace cuda {

/// Bytes of shared memory of a block of threads on the least of the supported devices: compute
/// capabilities 8.6, 8.9 and 12.0.
inline constexpr int kLeastBlockShared = 99 * 1024;
/// Device memory for the states of attention's splits, of an owner of passes. Rows whose contexts
/// need more in all fold their splits one after the other, with one state each. A context of 128 K
/// by itself takes 7 MB of it, where 28 heads have 128 elements and a split 256 positions; the rest
/// lets larger batches keep every multiprocessor at work.
inline constexpr std::size_t kAttentionWorkspaceBytes = std::size_t{64} << 20;
/// Bytes of a row's state: values, maximum and sum, in fp32, for each query head.
[[nodiscard]] constexpr std::size_t attention_state_bytes(int heads, int head_dim) {
  return static_cast<std::size_t>(heads) * (head_dim + 2) * sizeof(float);
}

/// Widest row of add_rmsnorm(), which keeps it in registers.
inline constexpr int kMaxNormWidth = 32768;
/// Most experts of a layer: their matrices are an argument of kernels, and their logits are kept in
/// a warp's registers.
inline constexpr int kMaxExperts = 512;
/// Most pairs of a row and a query head in one item of attention.
[[nodiscard]] constexpr int max_pairs(int head_dim) { return head_dim <= 128 ? 64 : 32; }

}  // namespace cuda
}  // namespace paceline::kernels
