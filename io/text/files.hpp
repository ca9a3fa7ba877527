// Reading of whole files, and kinds of files that users often give instead of JSON Lines.
#pragma once

#include <string>
#include <string_view>

namespace paceline::io::text {

/// Reads a file. Throws DataError if it does not exist or is not a regular file (a device or a pipe
/// might never end), IoError if it cannot be read; both name the path and the reason.
[[nodiscard]] std::string read_file(const std::string& path);

/// Text that names the kind of a file that is not JSON Lines, and a way to convert it: "this is a
/// Parquet file; ...". Empty: its first bytes are of no known kind.
[[nodiscard]] std::string other_format(std::string_view text, const std::string& path);

}  // namespace paceline::io::text
