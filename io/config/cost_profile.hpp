// The file that `paceline profile` writes and runs read: a cost table as YAML.
#pragma once

#include <string>

#include "runtime/costs/cost_table.hpp"

namespace paceline::io {

/// From the file's text, which read_yaml_file() reads; `name` stands for the file in messages.
/// Throws UsageError("file:line:column: ...") on what is no cost table, naming the key, what was
/// expected and what was found. Thread-safe.
[[nodiscard]] CostTable parse_cost_profile(const std::string& text, const std::string& name);

/// Text that reads back to the same table, but for seconds rounded to four digits.
[[nodiscard]] std::string cost_profile_text(const CostTable& table);
/// Throws as write_cost_profile() would where that can be told before there are costs.
void require_cost_profile_writable(const std::string& path);
/// Replaces the file as a whole or not at all. Throws IoError.
void write_cost_profile(const std::string& path, const CostTable& table);

}  // namespace paceline::io
