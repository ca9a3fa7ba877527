// Check of config.json for sliding windows, which the decoder does not have. Private to this
// folder.
#pragma once

#include "io/checkpoint/json_section.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::io {

/// Throws DataError where a layer sees less than the context, model.max_position. A config without
/// windows passes, and one whose windows are as wide as the context.
void check_windows(const JsonSection& config, const ModelConfig& model);

}  // namespace paceline::io
