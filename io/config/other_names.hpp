// Names of settings in other engines and trainers, and keys of earlier versions, with the names
// that these settings have here.
#pragma once

#include <optional>
#include <string_view>

namespace paceline::io {

struct OtherName {
  std::string_view name;
  std::string_view says;  ///< end of a sentence, as "is prompts.samples here"
  bool samples = false;   ///< it is about sampling, so single requests may have it too
  std::optional<double> neutral = std::nullopt;  ///< value that changes nothing; nullopt: none
};

/// Null: no such name is known. A key of an earlier version is written "section.key".
[[nodiscard]] const OtherName* find_other_name(std::string_view name);

}  // namespace paceline::io
