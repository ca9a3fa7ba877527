// Kinds of files that are often mistaken for JSON Lines.
#pragma once

#include <string>
#include <string_view>

namespace paceline::io::text {

/// The kind of a file with this text that is not JSON Lines, and how to convert it: "this is a
/// Parquet file; ...". Empty: none of the kinds known by their first bytes.
[[nodiscard]] std::string other_format(std::string_view text, const std::string& path);

}  // namespace paceline::io::text
