// Heads that draft for a model, from the features that the model has computed for a text: EAGLE-3's
// and DFlash's, which are checkpoints of their own, or the model's own next-token layer. Sources:
// EAGLE-3 (arXiv 2503.01840), EAGLE-3.1 (arXiv 2605.09992), P-EAGLE (arXiv 2602.01469), DFlash
// (arXiv 2602.06036) and the published checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
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

/// Normalisation of the target's features before `fc` joins them.
enum class FeatureNorm : std::uint8_t {
  none,
  each,   ///< each layer's features by weights of their own (EAGLE-3.1: "fc_norm")
  joined  ///< all features together ("norm_before_fc")
};

/// An EAGLE-3 head: a projection of the target's features, decoder layers of which the first reads
/// a token's embedding and a feature side by side in its attention, and an output of the head's
/// own. With a mask token it is a P-EAGLE head, which has one learnt feature for masked rows.
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

/// A DFlash head, which fills in a block of tokens in one pass. `fc` joins the target's features of
/// a position, and each layer's keys and values of the position are projections of this context. A
/// block is the text's last token and then masked rows, of the mask token. Its rows see the whole
/// context and one another, later rows too. Masked row i predicts the i-th token after the text.
/// read_layers and mask_token are always given.
struct DFlashConfig : PublishedHead {
  std::int32_t block_size = 0;  ///< rows of a block, the last token's included; at least 2
  /// Whether the head has an output of its own. False: the target's is used, which is its
  /// embeddings' matrix where layer.tied_embeddings.
  bool own_output = false;
};

/// A model's next-token layer (multi-token prediction: DeepSeek-V3, arXiv 2412.19437, section 2.2).
/// The model was trained with it, and it comes after the model's last layer.
struct MtpConfig {
  /// The layer's sizes, as a model of this layer alone.
  ModelConfig layer;
  std::int32_t number = 0;  ///< number in the checkpoint, equal to the model's number of layers
  // Published checkpoints store both twice, as the model's and as the layer's.
  bool own_embeddings = false;  ///< false: the model's are used
  bool own_output = false;      ///< false: the model's is used
};

using HeadConfig = std::variant<Eagle3Config, DFlashConfig, MtpConfig>;

/// The head, if it is a checkpoint of its own; null: it is the target's next-token layer.
[[nodiscard]] inline const PublishedHead* published(const HeadConfig& head) {
  if (const auto* eagle = std::get_if<Eagle3Config>(&head)) return eagle;
  return std::get_if<DFlashConfig>(&head);
}
/// Number and sizes of the head's layers. vocab: the target's.
[[nodiscard]] inline const ModelConfig& layer_of(const HeadConfig& head) {
  return std::visit([](const auto& config) -> const ModelConfig& { return config.layer; }, head);
}
[[nodiscard]] inline bool has_own_embeddings(const HeadConfig& head) {
  return std::visit([](const auto& config) { return config.own_embeddings; }, head);
}
/// Number of tokens with logits.
[[nodiscard]] inline std::int32_t draft_vocab(const HeadConfig& head) {
  const PublishedHead* own = published(head);
  return own != nullptr ? own->draft_vocab : layer_of(head).vocab;
}
/// PublishedHead::mask_token.
[[nodiscard]] inline std::optional<TokenId> mask_token(const HeadConfig& head) {
  const PublishedHead* own = published(head);
  return own != nullptr ? own->mask_token : std::nullopt;
}
/// DFlashConfig::block_size; 0: the head drafts no blocks.
[[nodiscard]] inline std::int32_t block_size(const HeadConfig& head) {
  const auto* dflash = std::get_if<DFlashConfig>(&head);
  return dflash != nullptr ? dflash->block_size : 0;
}
/// Name of the kind of head, for messages.
[[nodiscard]] inline const char* kind_of(const HeadConfig& head) {
  if (block_size(head) > 0) return "DFlash head";
  if (mask_token(head)) return "P-EAGLE head";
  return published(head) != nullptr ? "EAGLE-3 head" : "next-token layer";
}
/// Elements of the target's features for a token, which the head reads.
[[nodiscard]] inline std::int64_t feature_width(const HeadConfig& head) {
  if (const PublishedHead* own = published(head))
    return std::int64_t{own->features()} * own->target_hidden;
  return layer_of(head).hidden;
}
/// The layers of this target before which the head reads the residual stream; the number of layers
/// means after the last.
[[nodiscard]] inline std::vector<std::int32_t> feature_layers(const HeadConfig& head,
                                                              const ModelConfig& target) {
  const PublishedHead* own = published(head);
  if (own == nullptr) return {target.layers};
  return own->read_layers.empty() ? default_feature_layers(target) : own->read_layers;
}

}  // namespace paceline
