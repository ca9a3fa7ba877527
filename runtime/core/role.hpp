// The role of a rank.
#pragma once

#include <cstdint>

namespace paceline {

/// Roles. Stored in telemetry: values are fixed.
enum class Role : std::uint8_t {
  verifier = 0,         ///< leads a verifier group: batches requests, runs steps, writes responses
  verifier_member = 1,  ///< a further rank of a tensor-parallel verifier group
  drafter = 2,
  spare = 3,  ///< a rank left over by the layout, which does nothing
};
[[nodiscard]] constexpr const char* name_of(Role role) {
  switch (role) {
    case Role::verifier:
      return "verifier";
    case Role::verifier_member:
      return "verifier-member";
    case Role::drafter:
      return "drafter";
    case Role::spare:
      return "spare";
  }
  return "unknown";
}

}  // namespace paceline
