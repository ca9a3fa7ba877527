// Lower bounds of the time of a simulated rollout.
#pragma once

#include <string>

#include "app/simulation/simulation_setup.hpp"

namespace paceline::app {

/// Seconds below which no schedule on the run's ranks is expected to end, by the cost tables and
/// the speeds of speculation_speed.hpp. Each request is assumed to have the best degree, mode and
/// window, whatever the configuration sets, and drafts by one drafter. An eager
/// drafter rank (protocol::DraftWindow) is assumed to draft for all second choices. Acceptance
/// counts by its mean, so a lucky run, or a run with several drafters at once, may be faster; so
/// may trees of heads, which count as chains.
struct LowerBounds {
  double longest = 0;  ///< for the response that takes longest alone on a group
  double work = 0;     ///< for all tokens on all ranks, each at its best batch
  [[nodiscard]] double larger() const { return longest > work ? longest : work; }
};
[[nodiscard]] LowerBounds lower_bounds(const SimulationSetup& simulation);

/// Text for people: the bounds, and the rollout's `seconds` divided by the larger bound.
[[nodiscard]] std::string lower_bounds_text(const LowerBounds& bounds, double seconds);

}  // namespace paceline::app
