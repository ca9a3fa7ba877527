// Reader of a Hugging Face directory's preprocessor_config.json.
#pragma once

#include <string>
#include <string_view>

#include "runtime/core/image_processor_config.hpp"

namespace paceline::io {

/// Reads `directory`/preprocessor_config.json, or else the image_processor of
/// processor_config.json, of a Qwen2VLImageProcessor. Throws DataError when there is neither, and
/// naming file, key, the expected and the found value: of another class, and of steps left out or
/// done otherwise; IoError when a file cannot be read. Thread-safe.
[[nodiscard]] ImageProcessorConfig load_image_processor(const std::string& directory);

/// Parses the file's text; `name` stands for it in messages.
[[nodiscard]] ImageProcessorConfig parse_image_processor(std::string_view text,
                                                         const std::string& name);

}  // namespace paceline::io
