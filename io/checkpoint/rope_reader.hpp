// Reader of config.json's rotary embedding. Private to this folder.
#pragma once

#include "io/checkpoint/json_section.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::io {

/// Reads rope_theta and the scaling of either schema. transformers 5 writes {"rope_parameters":
/// {"rope_type", "rope_theta", ...}}, 4 writes {"rope_theta": ..., "rope_scaling": null |
/// {"rope_type", ...}}. On entry model.max_position is max_position_embeddings, or 0 if there is
/// none (an EAGLE-3 head); on return it is the scaled context. Throws DataError on types other than
/// default, linear, dynamic, yarn and llama3, and if two places of the file contradict each other.
void read_rope(const JsonSection& config, ModelConfig& model);

}  // namespace paceline::io
