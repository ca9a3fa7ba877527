// What config.json and the tensors of an EAGLE-3 head say of it, in the terms its computation uses,
// and what it asks of the target. By EAGLE-3 (arXiv 2503.01840) and the published checkpoints.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/model_config.hpp"

namespace paceline {

inline constexpr int kFeatureLayers = 3;  ///< of the target, that a head's features come from

/// The target's layers before which its residual stream is read: one of the first, the middle and
/// the last but two. Two of them may be one in a small model.
[[nodiscard]] constexpr std::array<int, kFeatureLayers> feature_layers(const ModelConfig& target) {
  return {2, target.layers / 2, target.layers - 3};
}
/// Layers that a target must have for there to be all of these.
inline constexpr int kLeastTargetLayers = 3;

/// A head: one decoder layer whose attention reads a token's embedding beside a feature, between a
/// projection of the target's features and an output of its own.
struct Eagle3Config {
  /// The layer's sizes. vocab: the target's; layers: 1; no biases, and no embeddings of its own.
  ModelConfig layer;
  std::int32_t target_hidden = 0;     ///< width of the residual stream that features come from
  std::int32_t draft_vocab = 0;       ///< tokens that it has logits of
  bool norm_before_residual = false;  ///< the residual is the feature after its norm, not before
  std::string prefix;                 ///< of the layer's tensors: "midlayer." or "layers.0."
  /// [draft_vocab] the target's id of each of its tokens; empty: the same ids.
  std::vector<std::int32_t> target_ids;
};

}  // namespace paceline
