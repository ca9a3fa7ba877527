// The place where drafts are made, if any are.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/core/types.hpp"

namespace paceline {

enum class SpeculationMode : std::uint8_t {
  plain,      ///< nothing is drafted
  coupled,    ///< verifiers draft for themselves, between their steps
  decoupled,  ///< drafter ranks draft ahead of the verifiers
};
[[nodiscard]] constexpr const char* name_of(SpeculationMode mode) {
  return name_in(std::array{"plain", "coupled", "decoupled"}, mode);
}

}  // namespace paceline
