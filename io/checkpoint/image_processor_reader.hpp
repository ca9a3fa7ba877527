// Reader of a Hugging Face directory's preprocessor_config.json.
#pragma once

#include <string>
#include <string_view>

#include "runtime/core/image_processor_config.hpp"

namespace paceline::io {

/// Reads `directory`/preprocessor_config.json, or else the image_processor in
/// processor_config.json, of a Qwen2VLImageProcessor. Throws DataError if neither file exists.
/// Throws DataError naming file, key, the expected and the found value on another class, or on
/// steps that are left out or differ. Throws IoError if a file cannot be read. Thread-safe.
[[nodiscard]] ImageProcessorConfig load_image_processor(const std::string& directory);

/// Parses a file's text; `name` is the file's in messages.
[[nodiscard]] ImageProcessorConfig parse_image_processor(std::string_view text,
                                                         const std::string& name);

}  // namespace paceline::io
