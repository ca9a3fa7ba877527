// Heads that draft for a model, from the features that the model has computed for a text: EAGLE-3's
// and DFlash's, which are checkpoints of their own, or the model's own next-token layer.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "runtime/core/dflash_config.hpp"
#include "runtime/core/eagle3_config.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline {

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
