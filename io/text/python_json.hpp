// JSON as Python's json.dumps writes it: chat templates print tools so (tojson).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace paceline::io::text {

/// How json.dumps separates: by ", " and ": " on one line unless told otherwise.
struct PythonJsonStyle {
  int indent = 0;        ///< spaces a level, a line each; 0: one line
  bool compact = false;  ///< separators=(',', ':')
};

/// What json.dumps(value, ensure_ascii=False) writes: members in their order. Throws DataError on
/// whole numbers past 64 bits, and on others past a double.
[[nodiscard]] std::string python_json(const nlohmann::ordered_json& value,
                                      const PythonJsonStyle& style = {});

}  // namespace paceline::io::text
