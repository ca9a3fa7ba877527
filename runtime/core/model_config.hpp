// What config.json says of a model. Its layers and tensors follow from it by its family
// (model_description.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/core/model_description.hpp"
#include "runtime/core/types.hpp"

namespace paceline {

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

/// Experts: gated MLPs, of which a router chooses some for every row.
struct ExpertConfig {
  std::int32_t routed = 0;        ///< experts of a layer
  std::int32_t chosen = 0;        ///< of these, by each row; 1 to routed
  std::int32_t width = 0;         ///< of one expert
  std::int32_t shared_width = 0;  ///< of the experts that every row uses, together; 0: none
  bool normalised = false;        ///< weights of a row's chosen experts add up to `scale`
  // As in kernels::Routing:
  bool sigmoid = false;
  bool corrected = false;  ///< there is a correction of the scores to choose by
  std::int32_t groups = 1;
  std::int32_t chosen_groups = 1;
  float scale = 1.0F;
  bool wide_router = false;  ///< routers are stored in fp32, whatever the other weights are
  std::vector<std::int32_t> dense_layers;  ///< ascending; they have one MLP instead

  [[nodiscard]] bool in_layer(std::int32_t n) const {
    return !std::binary_search(dense_layers.begin(), dense_layers.end(), n);
  }
};

/// Multi-head latent attention (LatentAttention).
struct LatentConfig {
  std::int32_t q_rank = 0;  ///< 0: queries are projected at once
  std::int32_t kv_rank = 0;
  std::int32_t rope = 0;       ///< of each query, and of each position's key, which heads share
  std::int32_t value_dim = 0;  ///< of each head
  float score_scale = 1.0F;    ///< of scores, beside 1 / sqrt of a query head's elements: YaRN's
  /// Of the norms of q_rank and kv_rank elements, whatever the file says of others.
  static constexpr float kNormEpsilon = 1e-6F;
};

/// The tower of a model that reads pictures (TowerDescription): sizes in elements.
struct TowerConfig {
  std::int32_t layers = 0;
  std::int32_t width = 0;
  std::int32_t heads = 0;
  std::int32_t intermediate = 0;    ///< width of an MLP
  std::int32_t patch = 14;          ///< as of ImageProcessorConfig
  std::int32_t temporal_patch = 2;  ///< likewise
  std::int32_t merge = 2;           ///< likewise
  double rope_theta = 10000.0;
  /// Side of a window, in rows of the tower's result, within which layers attend; 0: no layer does.
  std::int32_t window = 0;
  std::vector<std::int32_t> whole_layers;  ///< ascending; those that attend to all, beside windows

  [[nodiscard]] std::int32_t head_dim() const { return width / heads; }
  [[nodiscard]] std::int64_t patch_elements() const {
    return std::int64_t{3} * temporal_patch * patch * patch;
  }
  [[nodiscard]] bool is_windowed(std::int32_t layer) const {
    return window > 0 && !std::binary_search(whole_layers.begin(), whole_layers.end(), layer);
  }
};

/// What a model that reads pictures has beside its decoder of text.
struct VisionConfig {
  std::optional<TowerConfig> tower;  ///< none: the files say nothing of it
  TokenId image_token = -1;          ///< stands in a text for each row of a picture; -1: none does
  TokenId video_token = -1;          ///< likewise of films, which are not supported
  /// Pairs of a head that a row's frame rotates, those after them that its row in the picture does,
  /// and its column: all of rope_dim() / 2 (mrope_section, arXiv 2409.12191, section 2.1).
  std::array<std::int32_t, 3> rope_sections{};

  /// Tokens that stand for pictures and films.
  [[nodiscard]] std::vector<TokenId> placeholders() const {
    std::vector<TokenId> tokens;
    for (const TokenId token : {image_token, video_token}) {
      if (token >= 0) tokens.push_back(token);
    }
    return tokens;
  }
};

/// A decoder with gated MLPs. Sizes in elements.
struct ModelConfig {
  const Family* family = nullptr;  ///< set wherever a description is asked for
  std::int32_t vocab = 0;
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;  ///< width of an MLP that is no expert
  std::int32_t layers = 0;
  std::int32_t heads = 0;     ///< query heads
  std::int32_t kv_heads = 0;  ///< divides heads
  std::int32_t head_dim = 0;  ///< with latent attention, of a key's part without rotary embedding
  std::int32_t max_position = 0;  ///< context length, tokens; 0: not said
  /// Layers that the files may have behind the last, which predict the token after the next; the
  /// first can be a drafter (method mtp), others are not read.
  std::int32_t next_token_layers = 0;
  std::optional<ExpertConfig> experts;
  std::optional<LatentConfig> latent;
  std::optional<VisionConfig> vision;
  float norm_epsilon = 1e-6F;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;  ///< the head is the embeddings' matrix
  bool attention_bias = false;   ///< biases on q, k, v (Qwen2; Llama when it says so)
  bool output_bias = false;      ///< bias on o (Llama with attention_bias)
  bool mlp_bias = false;         ///< biases on gate, up, down (Llama when it says so)
  bool qk_norm = false;          ///< RMSNorm of each q and k head (Qwen3)
  DType dtype = DType::bf16;     ///< of the stored weights; of fp8, what they are converted to
  bool fp8 = false;              ///< most weights are stored in one byte each
  std::vector<TokenId> eos;      ///< end tokens, from generation_config.json or else config.json
  std::vector<TokenId> placeholders;  ///< of images, videos, sounds: what no response says

  /// The number S of canonical segments: of K in row-parallel projections, and of a layer's experts
  /// (TensorParallelGroup). It is the largest power of two that divides the kv heads, the routed
  /// experts, and in even parts the widths of other MLPs. A tensor-parallel degree must divide it.
  [[nodiscard]] std::int32_t segments() const {
    const auto divides = [this](std::int32_t s) {
      return kv_heads % s == 0 && (!has_dense_layers() || intermediate % (2 * s) == 0) &&
             (!experts || (experts->routed % s == 0 && experts->shared_width % (2 * s) == 0));
    };
    std::int32_t s = 1;
    while (divides(2 * s) && s < 64) s *= 2;
    return s;
  }
  /// Elements of a head that positions rotate.
  [[nodiscard]] std::int32_t rope_dim() const { return latent ? latent->rope : head_dim; }
  /// Elements that a layer keeps of a position.
  [[nodiscard]] std::int32_t kv_width() const {
    return latent ? latent->kv_rank + latent->rope : 2 * kv_heads * head_dim;
  }
  /// Whether some layer has an MLP of `intermediate`.
  [[nodiscard]] bool has_dense_layers() const { return !experts || dense_layers() > 0; }
  /// Experts that a token uses in all layers together.
  [[nodiscard]] std::int32_t routing_width() const {
    return experts ? (layers - dense_layers()) * experts->chosen : 0;
  }
  /// Layers with an ordinary MLP.
  [[nodiscard]] std::int32_t dense_layers() const {
    return experts ? static_cast<std::int32_t>(experts->dense_layers.size()) : layers;
  }
  /// Bytes of a stored matrix element. Quantised weights are counted as what most of them are;
  /// their scales are less than a hundredth.
  [[nodiscard]] double stored_bytes() const {
    return fp8 ? 1.0 : static_cast<double>(size_of(dtype));
  }
};

[[nodiscard]] inline ModelDescription describe(const ModelConfig& config) {
  return config.family->describe(config);
}
/// Bytes of a model's matrices as they are stored, embeddings and head included.
[[nodiscard]] double stored_weight_bytes(const ModelConfig& config);
/// Of them, those of routed experts, which GPUs may share while each has all else.
[[nodiscard]] double stored_expert_bytes(const ModelConfig& config);

}  // namespace paceline
