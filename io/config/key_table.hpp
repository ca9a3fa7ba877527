// The only table of configuration keys. Reading, writing and documentation use it, so a new key is
// one row.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/config/run_config.hpp"
#include "io/config/yaml_tree.hpp"

namespace paceline::io {

struct Key {
  std::string_view section;
  std::string_view name;  ///< "key", or "group.key" for a key in a map within the section
  std::string type;       ///< text about the values that it takes
  bool required = false;
  /// Sets the field from the value. Relative paths are relative to `directory`, which is absolute
  /// or relative to the working directory. Throws BadValue (codecs.hpp).
  std::function<void(RunConfig&, const YamlNode& value, const std::string& directory)> set;
  /// The field as YAML on one line, which `set` reads back to the same value.
  std::function<std::string(const RunConfig&)> get;
  std::string_view help;             ///< one line
  std::vector<std::string> details;  ///< further lines about its values; usually none
};

/// All keys by section, in the order in which they are written.
[[nodiscard]] std::span<const Key> key_table();

}  // namespace paceline::io
