#include "kernels/limits.hpp"

#include <algorithm>

#include "kernels/backend.hpp"
#include "kernels/gpus.hpp"

namespace paceline::kernels {
namespace {

std::string unsupported_latent(const LatentConfig& latent) {
  const auto fits = [](int size, int most) { return size % kHeadDimStep == 0 && size <= most; };
  if (!fits(latent.kv_rank, kMaxLatentValues)) {
    return "kv_lora_rank: expected a multiple of " + std::to_string(kHeadDimStep) + " up to " +
           std::to_string(kMaxLatentValues) + ", found " + std::to_string(latent.kv_rank);
  }
  if (!fits(latent.rope, kMaxLatentDim - latent.kv_rank)) {
    return "qk_rope_head_dim: expected a multiple of " + std::to_string(kHeadDimStep) + " up to " +
           std::to_string(kMaxLatentDim - latent.kv_rank) + ", found " +
           std::to_string(latent.rope);
  }
  return "";
}

std::string unsupported_by_cuda(const ModelConfig& config) {
  const std::string cpu = " (engine.backend: cpu takes any)";
  if (config.experts && config.experts->routed > cuda::kMaxExperts) {
    return "experts: expected at most " + std::to_string(cuda::kMaxExperts) +
           " a layer on a GPU, found " + std::to_string(config.experts->routed) + cpu;
  }
  if (config.experts && (config.experts->width % 2 != 0 || config.experts->shared_width % 2 != 0)) {
    return "moe_intermediate_size: expected an even number on a GPU, found " +
           std::to_string(config.experts->width) + " and " +
           std::to_string(config.experts->shared_width) + cpu;
  }
  // Products take pairs of weights along a row.
  if (config.hidden % 2 != 0 || config.hidden > cuda::kMaxNormWidth) {
    return "hidden_size: expected an even number up to " + std::to_string(cuda::kMaxNormWidth) +
           " on a GPU, found " + std::to_string(config.hidden) + cpu;
  }
  if (config.intermediate % 2 != 0) {
    return "intermediate_size: expected an even number on a GPU, found " +
           std::to_string(config.intermediate) + cpu;
  }
  if (config.vision && config.vision->tower) {
    const TowerConfig& tower = *config.vision->tower;
    if (tower.intermediate % 2 != 0 || tower.patch_elements() % 2 != 0) {
      return "vision_config: expected an even intermediate size and an even number of values a "
             "patch on a GPU, found " +
             std::to_string(tower.intermediate) + " and " + std::to_string(tower.patch_elements()) +
             cpu;
    }
  }
  const int group = config.heads / config.kv_heads;
  if (config.latent && config.head_dim % 2 != 0) {
    return "qk_nope_head_dim: expected an even number on a GPU, found " +
           std::to_string(config.head_dim) + cpu;
  }
  if (config.latent &&
      (config.latent->q_rank % 2 != 0 || config.latent->q_rank > cuda::kMaxNormWidth)) {
    return "q_lora_rank: expected an even number up to " + std::to_string(cuda::kMaxNormWidth) +
           " on a GPU, found " + std::to_string(config.latent->q_rank) + cpu;
  }
  if (!config.latent && group > cuda::max_pairs(config.head_dim)) {
    return "num_attention_heads: expected at most " +
           std::to_string(cuda::max_pairs(config.head_dim)) + " to a kv head on a GPU, found " +
           std::to_string(group) + cpu;
  }
  return "";
}

}  // namespace

std::string unusable_gpu(int major, int minor, std::uint32_t block_shared) {
  if (major < 8) {
    return "compute capability " + std::to_string(major) + "." + std::to_string(minor) +
           ", expected 8.0 or later (Ampere, Ada, Hopper, Blackwell)";
  }
  if (block_shared < cuda::kLeastBlockShared) {
    return std::to_string(block_shared >> 10) + " KB of shared memory a block, expected " +
           std::to_string(cuda::kLeastBlockShared >> 10) + " KB or more";
  }
  return "";
}

std::uint64_t attention_workspace(std::uint64_t rows, int heads, int head_dim) {
  return std::max<std::uint64_t>(cuda::kAttentionWorkspaceBytes,
                                 rows * cuda::attention_state_bytes(heads, head_dim));
}

std::string unsupported(std::string_view backend, const ModelConfig& config) {
  if (config.latent) {
    if (std::string why = unsupported_latent(*config.latent); !why.empty()) return why;
  } else if (config.head_dim % kHeadDimStep != 0 || config.head_dim > kMaxHeadDim) {
    return "head_dim (or hidden_size / num_attention_heads): expected a multiple of " +
           std::to_string(kHeadDimStep) + " up to " + std::to_string(kMaxHeadDim) + ", found " +
           std::to_string(config.head_dim);
  }
  return backend == "cuda" ? unsupported_by_cuda(config) : "";
}

}  // namespace paceline::kernels
