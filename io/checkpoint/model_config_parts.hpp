// Parts of config.json that models and heads share. Private to this folder.
#pragma once

#include <optional>

#include "io/checkpoint/json_section.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::io {

/// Reads sizes, in elements, by the rules of model.family. Required keys: vocab_size, hidden_size,
/// intermediate_size, num_hidden_layers and num_attention_heads.
void read_sizes(const JsonSection& config, ModelConfig& model);

/// Throws DataError on an activation, or other arithmetic, that the decoder does not have.
void check_arithmetic(const JsonSection& config);

/// Throws DataError if a layer attends to less than the context, model.max_position. A config
/// passes if it has no windows, or windows as wide as the context.
void check_windows(const JsonSection& config, const ModelConfig& model);

/// Sets model.experts by the keys of model.family; unset if the family has no experts. model.layers
/// and model.intermediate must be known. Throws DataError as JsonSection does.
void read_experts(const JsonSection& config, ModelConfig& model);

/// Reads rope_theta and the scaling of either schema. transformers 5 writes {"rope_parameters":
/// {"rope_type", "rope_theta", ...}}, 4 writes {"rope_theta": ..., "rope_scaling": null |
/// {"rope_type", ...}}. On entry model.max_position is max_position_embeddings, or 0 if there is
/// none (an EAGLE-3 head); on return it is the scaled context. Throws DataError on types other than
/// default, linear, dynamic, yarn and llama3, and if two places of the file contradict each other.
void read_rope(const JsonSection& config, ModelConfig& model);

/// Reads "vision_config". `hidden`: width of the decoder, which the tower's results must have.
/// nullopt: the file has no such object, or an empty one.
[[nodiscard]] std::optional<TowerConfig> read_tower(const JsonSection& config, TowerKeys keys,
                                                    std::int32_t hidden);

}  // namespace paceline::io
