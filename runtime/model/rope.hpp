// Table of the rotary embedding.
#pragma once

#include <vector>

#include "runtime/core/model_config.hpp"

namespace paceline::model {

/// Table of cos and sin for positions [0, max_position): [max_position, rope_dim] with cos first
/// and then sin, rope_dim / 2 each. Angles are computed in fp32 as in transformers and scaled as
/// the model's configuration says (with YaRN, cos and sin too), so that long contexts agree with
/// the trainer.
[[nodiscard]] std::vector<float> rope_table(const ModelConfig& config, int max_position);

}  // namespace paceline::model
