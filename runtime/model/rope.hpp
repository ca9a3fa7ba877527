// The rotary embedding's table.
#pragma once

#include <vector>

#include "runtime/core/model_config.hpp"

namespace paceline::model {

/// cos and sin for positions [0, max_position): [max_position][rope_dim], cos then sin, each
/// rope_dim / 2 wide. Angles are formed in fp32 as transformers does, scaled as the model asks for
/// (cos and sin too, of YaRN), so that long contexts agree with the trainer.
[[nodiscard]] std::vector<float> rope_table(const ModelConfig& config, int max_position);

}  // namespace paceline::model
