// Whole files into memory.
#pragma once

#include <string>

namespace paceline::io::text {

/// Throws DataError when there is no such file or it is not a regular one (a device or a pipe might
/// never end), IoError when it cannot be read; both name the path and the reason.
[[nodiscard]] std::string read_file(const std::string& path);
/// Throws std::filesystem::filesystem_error when that cannot be known, as in a folder that may not
/// be searched.
[[nodiscard]] bool file_exists(const std::string& path);

}  // namespace paceline::io::text
