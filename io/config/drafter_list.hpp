// The codec of speculation.drafters: a list of maps, each with the keys of its method.
#pragma once

#include <string>
#include <vector>

#include "io/config/run_config.hpp"
#include "io/config/yaml_tree.hpp"

namespace paceline::io {

struct DrafterList {
  [[nodiscard]] static std::string type();
  /// Throws BadValue (codecs.hpp) on unknown methods, keys that the method does not have, bad
  /// values, a second entry of a method other than model, and a second head.
  [[nodiscard]] static std::vector<DrafterSetting> read(const YamlNode& node,
                                                        const std::string& directory);
  [[nodiscard]] static std::string write(const std::vector<DrafterSetting>& drafters);

  /// The keys of an entry with their types, defaults and help, one key a line.
  [[nodiscard]] static std::vector<std::string> details();
};

}  // namespace paceline::io
