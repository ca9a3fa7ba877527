// Kinds of files that are often taken for JSON Lines.
#pragma once

#include <string>
#include <string_view>

namespace paceline::io::text {

/// What the file of this text is instead of JSON Lines, and how to make those of it: "this is a
/// Parquet file; ...". Empty: none of the kinds that are known by how they begin.
[[nodiscard]] std::string other_format(std::string_view text, const std::string& path);

}  // namespace paceline::io::text
