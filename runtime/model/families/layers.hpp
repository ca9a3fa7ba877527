// Layers that families have in common, under the names that transformers gives their tensors.
#pragma once

#include <functional>
#include <string>

#include "runtime/core/model_config.hpp"
#include "runtime/core/model_description.hpp"

namespace paceline::model {

/// Attention with the configuration's heads and biases. `width`: elements of a row that it reads.
[[nodiscard]] GroupedAttention grouped_attention(const ModelConfig& config,
                                                 const std::string& prefix, std::int64_t width);

/// A gated MLP of this width.
[[nodiscard]] GatedMlp gated_mlp(const std::string& prefix, std::int64_t hidden, std::int64_t width,
                                 bool bias = false);

/// Routed experts of the configuration: a router "gate" and gated MLPs "experts.N.".
[[nodiscard]] ExpertMlp expert_mlp(const ModelConfig& config, const std::string& prefix);

/// A decoder of embeddings, layers "model.layers.N.", last norm and head. `layer`: describes the
/// layer with the given prefix and number.
using DescribeLayer = std::function<LayerDescription(const std::string& prefix, std::int32_t n)>;
[[nodiscard]] ModelDescription decoder(const ModelConfig& config, const DescribeLayer& layer);

/// A layer of grouped attention and a gated MLP, with a norm before each.
[[nodiscard]] LayerDescription dense_layer(const ModelConfig& config, const std::string& prefix,
                                           std::int64_t attention_width);

/// A decoder of dense layers: Llama and its kin.
[[nodiscard]] ModelDescription dense_decoder(const ModelConfig& config);

}  // namespace paceline::model
