// JSON as Python's json.dumps writes it, which chat templates print for tools (tojson).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace paceline::io::text {

/// Style of json.dumps; the default is one line with ", " and ": " as separators.
struct PythonJsonStyle {
  int indent = 0;        ///< spaces for each level, with line breaks; 0: one line
  bool compact = false;  ///< separators=(',', ':')
};

/// Reads well-formed JSON as Python's json.loads does: members in their order. Whole numbers beyond
/// 64 bits stay exact, as binary values that hold their digits (JSON text has no binary values).
[[nodiscard]] nlohmann::ordered_json read_as_python(std::string_view json);

/// The text that json.dumps(value, ensure_ascii=False) writes for a value from read_as_python(),
/// with members in their order.
[[nodiscard]] std::string python_json(const nlohmann::ordered_json& value,
                                      const PythonJsonStyle& style = {});

}  // namespace paceline::io::text
