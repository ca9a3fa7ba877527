// Whole files into memory.
#pragma once

#include <string>

namespace paceline::io::text {

/// Throws IoError naming the path and the system's reason, and DataError when the path names no
/// regular file: a device or a pipe might never end.
[[nodiscard]] std::string read_file(const std::string& path);
/// Throws std::filesystem::filesystem_error when that cannot be known, as in a folder that may not
/// be searched.
[[nodiscard]] bool file_exists(const std::string& path);

}  // namespace paceline::io::text
