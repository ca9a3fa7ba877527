// JSON as Python's json.dumps writes it: chat templates print tools so (tojson).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace paceline::io::text {

/// How json.dumps separates: by ", " and ": " on one line unless told otherwise.
struct PythonJsonStyle {
  int indent = 0;        ///< spaces a level, a line each; 0: one line
  bool compact = false;  ///< separators=(',', ':')
};

/// Reads well formed JSON as Python's json.loads does: members in their order, and whole numbers
/// past 64 bits exactly, as binary values that hold their digits (text has no binary values).
[[nodiscard]] nlohmann::ordered_json read_as_python(std::string_view json);

/// What json.dumps(value, ensure_ascii=False) writes of a value that read_as_python() gave: members
/// in their order.
[[nodiscard]] std::string python_json(const nlohmann::ordered_json& value,
                                      const PythonJsonStyle& style = {});

}  // namespace paceline::io::text
