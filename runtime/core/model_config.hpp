// A model's configuration, from its config.json. The family derives the model's layers and tensors
// from it (model_description.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "runtime/core/model_description.hpp"
#include "runtime/core/types.hpp"

namespace paceline {

// The kinds of scaling of the rotary embedding's frequencies (config.json "rope_scaling" or
// "rope_parameters"), as transformers computes them.

/// All frequencies are divided by `factor`.
struct LinearRopeScaling {
  double factor = 1;
};

/// NTK scaling by the length of the sequence. Within ModelConfig::max_position nothing is scaled.
/// Past it every token would change the keys of all tokens before it, so that they could not be
/// cached. A sequence may therefore have at most max_position positions.
struct DynamicRopeScaling {
  double factor = 1;
};

/// YaRN (arXiv 2309.00071): frequencies with many rotations within the original context are kept,
/// frequencies with few are divided by `factor`, and frequencies in between are blended.
struct YarnRopeScaling {
  double factor = 1;
  double attention_factor = 1;  ///< factor for cos and sin
  double beta_fast = 32;        ///< rotations from which on a frequency is kept
  double beta_slow = 1;         ///< rotations up to which a frequency is divided
  std::int32_t original_max_position = 0;
  bool truncate = true;  ///< the bounds of the blended dimensions are rounded to whole dimensions
};

/// Scaling by wavelength, of Llama 3.x.
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
  std::int32_t chosen = 0;        ///< experts chosen for each row; 1 to routed
  std::int32_t width = 0;         ///< width of one expert
  std::int32_t shared_width = 0;  ///< sum of the widths of experts that every row uses; 0: none
  bool normalised = false;        ///< weights of a row's chosen experts add up to `scale`
  // Fields of the same names as kernels::Routing's:
  bool sigmoid = false;
  bool corrected = false;  ///< experts are chosen by corrected scores
  std::int32_t groups = 1;
  std::int32_t chosen_groups = 1;
  float scale = 1.0F;
  bool wide_router = false;  ///< routers are stored in fp32, whatever the other weights are
  std::vector<std::int32_t> dense_layers;  ///< layers with one MLP instead of experts, ascending

  [[nodiscard]] bool in_layer(std::int32_t n) const {
    return !std::binary_search(dense_layers.begin(), dense_layers.end(), n);
  }
};

/// Multi-head latent attention (LatentAttention).
struct LatentConfig {
  std::int32_t q_rank = 0;  ///< 0: queries are projected at once
  std::int32_t kv_rank = 0;
  std::int32_t rope = 0;       ///< rotated elements of each query, and of the key that heads share
  std::int32_t value_dim = 0;  ///< elements of a head's value
  float score_scale = 1.0F;  ///< YaRN's factor for scores, besides 1 / sqrt(query head's elements)
  /// Epsilon of the norms of q_rank and kv_rank elements, whatever the file says of other norms.
  static constexpr float kNormEpsilon = 1e-6F;
};

/// The tower of a model that reads pictures (TowerDescription): sizes in elements.
struct TowerConfig {
  std::int32_t layers = 0;
  std::int32_t width = 0;
  std::int32_t heads = 0;
  std::int32_t intermediate = 0;    ///< width of an MLP
  std::int32_t patch = 14;          ///< ImageProcessorConfig::patch
  std::int32_t temporal_patch = 2;  ///< ImageProcessorConfig::temporal_patch
  std::int32_t merge = 2;           ///< ImageProcessorConfig::merge
  double rope_theta = 10000.0;
  /// Side, in rows of the tower's result, of the windows within which layers attend; 0: no windows.
  std::int32_t window = 0;
  std::vector<std::int32_t> whole_layers;  ///< layers without windows, ascending

  [[nodiscard]] std::int32_t head_dim() const { return width / heads; }
  [[nodiscard]] std::int64_t patch_elements() const {
    return std::int64_t{3} * temporal_patch * patch * patch;
  }
  [[nodiscard]] bool is_windowed(std::int32_t layer) const {
    return window > 0 && !std::binary_search(whole_layers.begin(), whole_layers.end(), layer);
  }
};

/// The parts, besides its decoder of text, of a model that reads pictures.
struct VisionConfig {
  std::optional<TowerConfig> tower;  ///< absent: the files do not describe it
  TokenId image_token = -1;          ///< stands in a text for each row of a picture; -1: none does
  TokenId video_token = -1;  ///< the same for videos, which are not supported; -1: none does
  /// Numbers of a head's pairs that a text row's frame rotates, then its row in the picture, then
  /// its column: rope_dim() / 2 in all (mrope_section, arXiv 2409.12191, section 2.1).
  std::array<std::int32_t, 3> rope_sections{};

  /// Tokens that stand for pictures and videos.
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
  const Family* family = nullptr;  ///< must be set for describe()
  std::int32_t vocab = 0;
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;  ///< width of an MLP that is not an expert
  std::int32_t layers = 0;
  std::int32_t heads = 0;         ///< query heads
  std::int32_t kv_heads = 0;      ///< divides heads
  std::int32_t head_dim = 0;      ///< with latent attention: a key's part without rotary embedding
  std::int32_t max_position = 0;  ///< context length, tokens; 0: not said
  /// Number of layers that the files may have after the last one, which predict the token after the
  /// next. The first can be a drafter (method mtp), others are not read.
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
  DType dtype = DType::bf16;     ///< type of the stored weights; with fp8: after conversion
  bool fp8 = false;              ///< most weights are stored in one byte each
  std::vector<TokenId> eos;      ///< end tokens, from generation_config.json or else config.json
  std::vector<TokenId> placeholders;  ///< for images, videos, sounds: no response has these

  /// The number S of canonical segments: of K in row-parallel projections, and of a layer's experts
  /// (TensorParallelGroup). S is the largest power of two, at most 64, that divides the kv heads,
  /// the routed experts and half the widths of other MLPs. A tensor-parallel degree must divide S.
  [[nodiscard]] std::int32_t segments() const {
    const auto divides = [this](std::int32_t s) {
      return kv_heads % s == 0 && (!has_dense_layers() || intermediate % (2 * s) == 0) &&
             (!experts || (experts->routed % s == 0 && experts->shared_width % (2 * s) == 0));
    };
    std::int32_t s = 1;
    while (divides(2 * s) && s < 64) s *= 2;
    return s;
  }
  /// Elements of a head that rotary embedding rotates.
  [[nodiscard]] std::int32_t rope_dim() const { return latent ? latent->rope : head_dim; }
  /// Elements of a position's KV in a layer.
  [[nodiscard]] std::int32_t kv_width() const {
    return latent ? latent->kv_rank + latent->rope : 2 * kv_heads * head_dim;
  }
  /// Whether some layer has an MLP of width `intermediate`.
  [[nodiscard]] bool has_dense_layers() const { return !experts || dense_layers() > 0; }
  /// Number of experts that a token uses in all layers together.
  [[nodiscard]] std::int32_t routing_width() const {
    return experts ? (layers - dense_layers()) * experts->chosen : 0;
  }
  /// Number of layers with an ordinary MLP.
  [[nodiscard]] std::int32_t dense_layers() const {
    return experts ? static_cast<std::int32_t>(experts->dense_layers.size()) : layers;
  }
  /// Bytes of a stored matrix element. All matrices of an fp8 model count as fp8; their scales,
  /// less than a hundredth, are left out.
  [[nodiscard]] double stored_bytes() const {
    return fp8 ? 1.0 : static_cast<double>(size_of(dtype));
  }
};

[[nodiscard]] inline ModelDescription describe(const ModelConfig& config) {
  return config.family->describe(config);
}
/// Bytes of a model's matrices as they are stored, embeddings and head included.
[[nodiscard]] double stored_weight_bytes(const ModelConfig& config);
/// The part of stored_weight_bytes() in routed experts, which GPUs may divide among themselves
/// while each has all other weights.
[[nodiscard]] double stored_expert_bytes(const ModelConfig& config);

}  // namespace paceline
