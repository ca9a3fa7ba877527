// Whole files into memory.
#pragma once

#include <string>

namespace paceline::io::text {

/// Throws IoError naming the path and the system's reason.
[[nodiscard]] std::string read_file(const std::string& path);
[[nodiscard]] bool file_exists(const std::string& path);

}  // namespace paceline::io::text
