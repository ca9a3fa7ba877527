// The role of a rank.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/core/types.hpp"

namespace paceline {

/// Roles. Stored in telemetry: values are fixed.
enum class Role : std::uint8_t {
  verifier = 0,         ///< leads a verifier group: batches requests, runs steps, writes responses
  verifier_member = 1,  ///< a further rank of a tensor-parallel verifier group
  drafter = 2,
  spare = 3,  ///< a rank left over by the layout, which does nothing
};
[[nodiscard]] constexpr const char* name_of(Role role) {
  return name_in(std::array{"verifier", "verifier-member", "drafter", "spare"}, role);
}

}  // namespace paceline
