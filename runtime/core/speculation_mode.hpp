// The place where drafts are made, if any are.
#pragma once

#include <cstdint>

namespace paceline {

enum class SpeculationMode : std::uint8_t {
  plain,      ///< nothing is drafted
  coupled,    ///< verifiers draft for themselves, between their steps
  decoupled,  ///< drafter ranks draft ahead of the verifiers
};
[[nodiscard]] constexpr const char* name_of(SpeculationMode mode) {
  switch (mode) {
    case SpeculationMode::plain:
      return "plain";
    case SpeculationMode::coupled:
      return "coupled";
    case SpeculationMode::decoupled:
      return "decoupled";
  }
  return "unknown";
}

}  // namespace paceline
