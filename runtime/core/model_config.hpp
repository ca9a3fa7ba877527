// What config.json says of a model, in the terms the decoder uses.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline {

/// mistral: without a sliding window, which makes it a Llama.
enum class Architecture : std::uint8_t { llama, mistral, qwen2, qwen3 };
[[nodiscard]] constexpr const char* name_of(Architecture a) {
  constexpr const char* names[] = {"llama", "mistral", "qwen2", "qwen3"};
  return names[static_cast<int>(a)];
}

// How the rotary embedding's frequencies are scaled (config.json "rope_scaling" or
// "rope_parameters"), as transformers computes them.

/// All frequencies are divided by `factor`.
struct LinearRopeScaling {
  double factor = 1;
};

/// NTK scaling by the length of the sequence. Within ModelConfig::max_position nothing is scaled;
/// past it every token would change the keys of all tokens before it, so that no cache of them
/// holds. max_position is therefore the most that a sequence may have.
struct DynamicRopeScaling {
  double factor = 1;
};

/// YaRN (arXiv 2309.00071): frequencies that turn often within the original context are kept, those
/// that turn seldom are divided by `factor`, and those between are blended.
struct YarnRopeScaling {
  double factor = 1;
  double attention_factor = 1;  ///< that cos and sin are multiplied by
  double beta_fast = 32;        ///< turns from which on a frequency is kept
  double beta_slow = 1;         ///< turns up to which it is divided
  std::int32_t original_max_position = 0;
  bool truncate = true;  ///< the bounds of what is blended are whole dimensions
};

/// Llama 3.x: by wavelength.
struct Llama3RopeScaling {
  float factor = 8.0F;
  float low_freq_factor = 1.0F;
  float high_freq_factor = 4.0F;
  std::int32_t original_max_position = 8192;
};

using RopeScaling = std::variant<std::monostate, LinearRopeScaling, DynamicRopeScaling,
                                 YarnRopeScaling, Llama3RopeScaling>;

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
  RopeScaling rope_scaling;
  bool tied_embeddings = false;  ///< the head is the embeddings' matrix
  bool attention_bias = false;   ///< biases on q, k, v (Qwen2; Llama when it says so)
  bool output_bias = false;      ///< bias on o (Llama with attention_bias)
  bool mlp_bias = false;         ///< biases on gate, up, down (Llama when it says so)
  bool qk_norm = false;          ///< RMSNorm of each q and k head (Qwen3)
  DType dtype = DType::bf16;     ///< of the stored weights
  std::vector<TokenId> eos;      ///< end tokens, from generation_config.json or else config.json
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
