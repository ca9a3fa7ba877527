// Layers that families have in common, under the names that transformers gives their tensors.
#pragma once

#include <functional>
#include <string>

#include "runtime/core/model_config.hpp"
#include "runtime/core/model_description.hpp"

namespace paceline::model {

/// Attention by the configuration's heads and biases. `width`: elements that it reads of a row.
[[nodiscard]] GroupedAttention grouped_attention(const ModelConfig& config,
                                                 const std::string& prefix, std::int64_t width);

/// A gated MLP of that width.
[[nodiscard]] GatedMlp gated_mlp(const std::string& prefix, std::int64_t hidden, std::int64_t width,
                                 bool bias = false);

/// Routed experts of the configuration: a router "gate" and gated MLPs "experts.N.".
[[nodiscard]] ExpertMlp expert_mlp(const ModelConfig& config, const std::string& prefix);

/// A decoder of layers "model.layers.N." between embeddings, last norm and head; `layer` describes
/// the one of that prefix and number.
using DescribeLayer = std::function<LayerDescription(const std::string& prefix, std::int32_t n)>;
[[nodiscard]] ModelDescription decoder(const ModelConfig& config, const DescribeLayer& layer);

/// A layer of grouped attention and a gated MLP, with a norm before each.
[[nodiscard]] LayerDescription dense_layer(const ModelConfig& config, const std::string& prefix,
                                           std::int64_t attention_width);

/// A decoder of dense layers: Llama and its kin.
[[nodiscard]] ModelDescription dense_decoder(const ModelConfig& config);

}  // namespace paceline::model
