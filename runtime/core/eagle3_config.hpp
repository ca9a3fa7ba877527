// Configuration of an EAGLE-3 head, from its config.json and its tensors, in the terms of its
// computation. Sources: EAGLE-3 (arXiv 2503.01840), EAGLE-3.1 (arXiv 2605.09992), P-EAGLE (arXiv
// 2602.01469) and the published checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/model_config.hpp"
#include "runtime/core/published_head.hpp"

namespace paceline {

/// Normalisation of the target's features before `fc` joins them.
enum class FeatureNorm : std::uint8_t {
  none,
  each,   ///< each layer's features by weights of their own (EAGLE-3.1: "fc_norm")
  joined  ///< all features together ("norm_before_fc")
};

/// A head: a projection of the target's features, decoder layers of which the first reads a token's
/// embedding and a feature side by side in its attention, and an output of the head's own. With a
/// mask token it is a P-EAGLE head, which has one learnt feature for masked rows.
struct Eagle3Config : PublishedHead {
  FeatureNorm feature_norm = FeatureNorm::none;
  bool norm_before_residual = false;  ///< the residual is the feature after its norm, not before it
  /// The feature of later rows is the output after the last norm, not before it.
  bool norm_output = false;
  std::string prefix;  ///< prefix of the first layer's tensors: "midlayer." or "layers.0."
};

/// The published default: the third layer, the middle one, and the third from the end. Two of them
/// may be the same in a small model.
[[nodiscard]] inline std::vector<std::int32_t> default_feature_layers(const ModelConfig& target) {
  return {2, target.layers / 2, target.layers - 3};
}
/// Fewest layers of a target in which all default layers exist.
inline constexpr int kLeastTargetLayers = 3;

}  // namespace paceline
