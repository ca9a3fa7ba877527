// The file of costs that `paceline profile` writes and runs read: a cost table as YAML.
#pragma once

#include <string>

#include "runtime/costs/cost_table.hpp"

namespace paceline::io {

/// Parses the text of a file, as read by read_yaml_file(); `name` is the file's in messages. Throws
/// UsageError("file:line:column: ...") on text that is no cost table, naming the key, what was
/// expected and what was found. Thread-safe.
[[nodiscard]] CostTable parse_cost_profile(const std::string& text, const std::string& name);

/// Text that reads back to the same table, except that seconds are rounded to four digits.
[[nodiscard]] std::string cost_profile_text(const CostTable& table);
/// Throws as write_cost_profile() would, as far as can be known before there are costs.
void require_cost_profile_writable(const std::string& path);
/// Replaces the whole file, or leaves it unchanged. Throws IoError.
void write_cost_profile(const std::string& path, const CostTable& table);

}  // namespace paceline::io
