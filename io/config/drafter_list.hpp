// The codec of speculation.drafters: a list of maps, each with the keys of its method.
#pragma once

#include <string>
#include <vector>

#include "io/config/run_config.hpp"
#include "io/config/yaml_tree.hpp"

namespace paceline::io {

struct DrafterList {
  [[nodiscard]] static std::string type();
  /// Throws BadValue (codecs.hpp) on unknown methods, on keys that the method does not have, on bad
  /// values and on a second entry of a method other than model.
  [[nodiscard]] static std::vector<DrafterSetting> read(const YamlNode& node,
                                                        const std::string& directory);
  [[nodiscard]] static std::string write(const std::vector<DrafterSetting>& drafters);

  /// The keys of an entry with their types, defaults and help, one a line.
  [[nodiscard]] static std::vector<std::string> details();
};

}  // namespace paceline::io
