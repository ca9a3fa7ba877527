// Parts of config.json that models and heads share. Private to this folder.
#pragma once

#include "io/checkpoint/json_section.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::io {

/// Reads sizes, in elements, by the rules of model.family. Required keys: vocab_size, hidden_size,
/// intermediate_size, num_hidden_layers and num_attention_heads.
void read_sizes(const JsonSection& config, ModelConfig& model);

/// Throws DataError on an activation, or other arithmetic, that the decoder does not have.
void check_arithmetic(const JsonSection& config);

}  // namespace paceline::io
