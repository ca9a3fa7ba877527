// JSON files of a model directory, read strictly. Private to this folder.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::io {

/// Parses a whole JSON text. Throws DataError("name: ...") if it is not JSON, has a key twice in
/// one object, or is nested more than 32 deep. Thread-safe.
[[nodiscard]] nlohmann::json parse_json(std::string_view text, const std::string& name);

/// Reads a file's text. Throws DataError if the file does not exist, is not a regular file or is
/// larger than 64 MiB; IoError if it cannot be read.
[[nodiscard]] std::string read_text_file(const std::string& path);

/// A value for an error message, cut to a readable length.
[[nodiscard]] std::string show_json(const nlohmann::json& value);
/// A shape for an error message: [rows, columns].
[[nodiscard]] std::string show_shape(const std::vector<std::int64_t>& shape);
/// Text for an error message: '...', cut to a readable length, control characters escaped.
[[nodiscard]] std::string show_text(std::string_view text);

}  // namespace paceline::io
