// Reader of the experts in config.json. Private to this folder.
#pragma once

#include "io/checkpoint/json_section.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::io {

/// Sets model.experts by the keys of model.family; unset if the family has no experts. model.layers
/// and model.intermediate must be known. Throws DataError as JsonSection does.
void read_experts(const JsonSection& config, ModelConfig& model);

}  // namespace paceline::io
