// Configuration of an EAGLE-3 head, from config.json and its tensors, in the terms of its
// computation, with its demands on the target. By EAGLE-3 (arXiv 2503.01840), EAGLE-3.1 (arXiv
// 2605.09992) and the published checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/model_config.hpp"

namespace paceline {

/// Normalisation of the target's features before `fc` joins them.
enum class FeatureNorm : std::uint8_t {
  none,
  each,   ///< each layer's, by weights of its own (EAGLE-3.1: "fc_norm")
  joined  ///< all together ("norm_before_fc")
};

/// A head: one decoder layer whose attention reads a token's embedding beside a feature, between a
/// projection of the target's features and an output of its own.
struct Eagle3Config {
  /// The layer's sizes. vocab: the target's; layers: 1; no biases.
  ModelConfig layer;
  std::int32_t target_hidden = 0;  ///< width of the residual stream that features come from
  std::int32_t draft_vocab = 0;    ///< tokens with logits
  /// The target's layers before which its residual stream is read, ascending; its number of layers:
  /// after the last. Empty: default_feature_layers().
  std::vector<std::int32_t> read_layers;
  FeatureNorm feature_norm = FeatureNorm::none;
  bool norm_before_residual = false;  ///< the residual is the feature after its norm, not before
  /// Later rows continue from the output after the last norm, not before.
  bool norm_output = false;
  bool own_embeddings = false;  ///< the head has embeddings, not only the target's
  std::string prefix;           ///< of the layer's tensors: "midlayer." or "layers.0."
  /// [draft_vocab] the target's id of each draft token; empty: the same ids.
  std::vector<std::int32_t> target_ids;

  /// Layers of the target that features come from.
  [[nodiscard]] std::int32_t features() const {
    return read_layers.empty() ? 3 : static_cast<std::int32_t>(read_layers.size());
  }
};

/// The published default: one of the first layers, the middle and the last but two. Two of them may
/// coincide in a small model.
[[nodiscard]] inline std::vector<std::int32_t> default_feature_layers(const ModelConfig& target) {
  return {2, target.layers / 2, target.layers - 3};
}
/// Fewest layers of a target in which all of these exist.
inline constexpr int kLeastTargetLayers = 3;

}  // namespace paceline
