// Whether config.json asks for sliding windows, which the decoder has not. For this folder's
// sources only.
#pragma once

#include "io/checkpoint/json_section.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::io {

/// Throws DataError where a layer sees less than the context, model.max_position. Windows are none
/// where no layer has one, or where they are as wide as the context.
void check_windows(const JsonSection& config, const ModelConfig& model);

}  // namespace paceline::io
