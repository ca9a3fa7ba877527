// Limits of the kernels. Only constants, as sources compiled for single instruction sets include
// this.
#pragma once

#include <cstddef>

namespace paceline::kernels {

/// Head sizes of attention, in elements: multiples of kHeadDimStep, up to kMaxHeadDim. The two
/// parts of latent vectors are multiples of kHeadDimStep too.
inline constexpr int kHeadDimStep = 8;
inline constexpr int kMaxHeadDim = 256;
/// Most elements of a latent vector, and of its value: the sizes of DeepSeek-V3.
inline constexpr int kMaxLatentDim = 576;
inline constexpr int kMaxLatentValues = 512;

namespace cuda {

/// Bytes of shared memory of a thread block on the smallest supported devices: compute capabilities
/// 8.6, 8.9 and 12.0.
inline constexpr int kLeastBlockShared = 99 * 1024;
/// Bytes of device memory for the states of attention's splits, for each owner of passes. Where a
/// batch's contexts need more, each row's splits are computed one after the other into one state. A
/// single context of 128 K takes 7 MB of it, with 28 heads of 128 elements and splits of 256
/// positions; the rest lets larger batches use every multiprocessor.
inline constexpr std::size_t kAttentionWorkspaceBytes = std::size_t{64} << 20;
/// Bytes of a row's state: for each query head its values, maximum and sum, in fp32.
[[nodiscard]] constexpr std::size_t attention_state_bytes(int heads, int head_dim) {
  return static_cast<std::size_t>(heads) * (head_dim + 2) * sizeof(float);
}

/// Widest row of add_rmsnorm(), which keeps a row in registers.
inline constexpr int kMaxNormWidth = 32768;
/// Most experts of a layer: their matrices are an argument of kernels, and a warp keeps their
/// logits in its registers.
inline constexpr int kMaxExperts = 512;
/// Most (row, query head) pairs in one work item of attention.
[[nodiscard]] constexpr int max_pairs(int head_dim) { return head_dim <= 128 ? 64 : 32; }

}  // namespace cuda
}  // namespace paceline::kernels
