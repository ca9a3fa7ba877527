// What config.json says of a model, in the terms the decoder uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline {

enum class Architecture : std::uint8_t { llama, qwen2, qwen3 };
[[nodiscard]] constexpr const char* name_of(Architecture a) {
  return a == Architecture::llama ? "llama" : a == Architecture::qwen2 ? "qwen2" : "qwen3";
}

/// Llama 3.x frequency scaling of the rotary embedding (config.json "rope_scaling": "llama3").
struct Llama3RopeScaling {
  float factor = 8.0F;
  float low_freq_factor = 1.0F;
  float high_freq_factor = 4.0F;
  std::int32_t original_max_position = 8192;
};

/// A dense decoder with grouped-query attention. Sizes in elements.
struct ModelConfig {
  Architecture architecture = Architecture::qwen2;
  std::int32_t vocab = 0;
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;
  std::int32_t layers = 0;
  std::int32_t heads = 0;     ///< query heads
  std::int32_t kv_heads = 0;  ///< divides heads
  std::int32_t head_dim = 0;
  std::int32_t max_position = 0;  ///< context length, tokens
  float norm_epsilon = 1e-6F;
  double rope_theta = 10000.0;
  std::optional<Llama3RopeScaling> rope_scaling;
  bool tied_embeddings = false;
  bool attention_bias = false;  ///< biases on q, k, v (Qwen2; Llama when it says so)
  bool output_bias = false;     ///< bias on o (Llama with attention_bias)
  bool mlp_bias = false;        ///< biases on gate, up, down (Llama when it says so)
  bool qk_norm = false;         ///< RMSNorm of each q and k head (Qwen3)
  DType dtype = DType::bf16;    ///< of the stored weights
  std::vector<TokenId> eos;     ///< end tokens, from generation_config.json or else config.json
  std::vector<TokenId> placeholders;  ///< of images, videos, sounds: what no response says

  /// The number of canonical K-segments S of the row-parallel projections (TensorParallelGroup):
  /// the largest power of two that divides the kv heads and the intermediate size. A
  /// tensor-parallel degree must divide it.
  [[nodiscard]] std::int32_t segments() const {
    std::int32_t s = 1;
    while (kv_heads % (2 * s) == 0 && intermediate % (4 * s) == 0 && s < 64) s *= 2;
    return s;
  }
};

}  // namespace paceline
