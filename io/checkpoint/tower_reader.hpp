// Reader of the tower for pictures in config.json. Private to this folder.
#pragma once

#include <optional>

#include "io/checkpoint/json_section.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::io {

/// Reads "vision_config". `hidden`: width of the decoder, which the tower's results must have.
/// nullopt: the file has no such object, or an empty one.
[[nodiscard]] std::optional<TowerConfig> read_tower(const JsonSection& config, TowerKeys keys,
                                                    std::int32_t hidden);

}  // namespace paceline::io
