// The list of a verifier's drafters.
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
  ahead,  ///< the layout's drafter ranks, which draft for all verifiers
  own,    ///< a drafter on the verifier's own rank
  tail,   ///< ranks that fell idle and use one drafter, for this verifier only (tail_drafters.hpp)
};

/// One drafter, and the facts about it that a verifier needs.
struct RosterEntry {
  std::string name = {};  ///< name in telemetry
  DrafterKind kind = DrafterKind::own;
  std::int32_t place = 0;  ///< index among the run's drafters; 0 for `ahead`
  /// Probability that a token of the drafter is accepted, as estimated before the run.
  double acceptance = policy::kUnknownAcceptance;
  std::optional<DrafterCosts> costs = {};  ///< costs on the ranks that draft; absent: unknown
  /// The drafter drafts only on trial (Speculator) and when groups race for a response (races.hpp).
  bool reserved = false;
  /// Decides after each level of a draft tree whether to draft the next; null: all are drafted.
  std::shared_ptr<draft::Levels> levels = {};
  std::unique_ptr<draft::Drafter> drafter = {};  ///< null until the verifier's role is built

  [[nodiscard]] bool runs_ahead() const { return drafter->capabilities().ahead; }
};

/// A verifier's drafters in the order in which it asks them. All verifiers of a run list the same
/// drafters, so an index in the roster names a drafter in races, messages and telemetry.
using DrafterRoster = std::vector<RosterEntry>;

}  // namespace paceline::speculation
