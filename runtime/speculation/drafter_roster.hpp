// The drafters of a verifier.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/costs/cost_table.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/policy/length/acceptance.hpp"

namespace paceline::speculation {

enum class DrafterKind : std::uint8_t {
  ahead,  ///< drafter ranks of the layout, which draft for all groups by all of the run's drafters
  own,    ///< the verifier's own drafter
  tail,   ///< freed ranks that draft by one drafter for this group alone (tail_drafters.hpp)
};

/// One drafter with all that belongs to it.
struct RosterEntry {
  std::string name = {};  ///< name in telemetry
  DrafterKind kind = DrafterKind::own;
  std::int32_t place = 0;  ///< index among the run's drafters; 0 for `ahead`
  /// Probability that the drafter's tokens are accepted, as known before the run.
  double acceptance = policy::kUnknownAcceptance;
  std::optional<DrafterCosts> costs = {};  ///< costs on the ranks that draft; absent: unknown
  bool reserved = false;                   ///< drafts only in races and on trial
  /// Judges after each level whether a draft grows; null: drafts have the length asked for.
  std::shared_ptr<draft::Levels> levels = {};
  std::unique_ptr<draft::Drafter> drafter = {};  ///< null until the verifier's role is built

  [[nodiscard]] bool runs_ahead() const { return drafter->capabilities().ahead; }
};

/// A verifier's drafters in the order in which they are asked. All verifiers of a run have the same
/// order, and an index in it names a drafter in races, messages and telemetry.
using DrafterRoster = std::vector<RosterEntry>;

}  // namespace paceline::speculation
