// What other engines and trainers call things, and earlier versions called keys, and what these are
// called here.
#pragma once

#include <optional>
#include <string_view>

namespace paceline::io {

struct OtherName {
  std::string_view name;
  std::string_view says;  ///< "is prompts.samples here"
  bool samples = false;   ///< it is about how tokens are sampled, and so about single requests too
  std::optional<double> neutral = std::nullopt;  ///< the value that changes nothing
};

/// Null where the name is none of theirs. A key of earlier versions is "section.key".
[[nodiscard]] const OtherName* find_other_name(std::string_view name);

}  // namespace paceline::io
