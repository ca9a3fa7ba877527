// Heads on a target that are published as checkpoints of their own, by their config.json and their
// tensors: what their kinds have in common, with their demands on the target.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/core/model_config.hpp"

namespace paceline {

/// Sizes, vocabulary and features of a published head.
struct PublishedHead {
  /// Number and sizes of the layers. vocab: the target's; no biases.
  ModelConfig layer;
  std::int32_t target_hidden = 0;  ///< width of the target's residual stream
  std::int32_t draft_vocab = 0;    ///< tokens with logits
  /// The target's layers before which its residual stream is read, ascending; the number of layers
  /// means after the last. Empty: default_feature_layers().
  std::vector<std::int32_t> read_layers;
  bool own_embeddings = false;  ///< the head has embeddings of its own
  /// The token of rows that stand for tokens not yet said. With it the head drafts all tokens in
  /// one pass. Absent: a token a pass.
  std::optional<TokenId> mask_token;
  /// [draft_vocab] the target's id of each draft token; empty: the same ids.
  std::vector<std::int32_t> target_ids;

  /// Number of the target's layers from which features come.
  [[nodiscard]] std::int32_t features() const {
    return read_layers.empty() ? 3 : static_cast<std::int32_t>(read_layers.size());
  }
};

}  // namespace paceline
