// Check of config.json for sliding windows, which the decoder does not support. Private to this
// folder.
#pragma once

#include "io/checkpoint/json_section.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::io {

/// Throws DataError if a layer attends to less than the context, model.max_position. A config
/// passes if it has no windows, or windows as wide as the context.
void check_windows(const JsonSection& config, const ModelConfig& model);

}  // namespace paceline::io
