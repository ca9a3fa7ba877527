// Kinds of files that users often give instead of JSON Lines.
#pragma once

#include <string>
#include <string_view>

namespace paceline::io::text {

/// Text that names the kind of a file that is not JSON Lines, and a way to convert it: "this is a
/// Parquet file; ...". Empty: its first bytes are of no known kind.
[[nodiscard]] std::string other_format(std::string_view text, const std::string& path);

}  // namespace paceline::io::text
