// Lower bounds for the time of a simulated rollout.
#pragma once

#include <string>

#include "app/simulation/simulation_setup.hpp"

namespace paceline::app {

/// Estimated lower bounds, in seconds, for any schedule on the run's ranks. They follow from the
/// cost tables and the speeds of speculation_speed.hpp. Each request is assumed to have one drafter
/// and the best speculation mode, draft length and tensor-parallel degree with known costs. An
/// eager drafter rank, which sends each token at once, is assumed to draft a branch at each token,
/// beginning with its second choice. Acceptance is taken at its mean, and a head's tree counts as a
/// chain. So luck, several drafters for a request, or trees can make a run faster than the bounds.
struct LowerBounds {
  double longest = 0;  ///< time of the slowest response, if a group works only on it
  double work = 0;     ///< time of sampling all tokens on all ranks, at the best batch size
  [[nodiscard]] double larger() const { return longest > work ? longest : work; }
};
[[nodiscard]] LowerBounds lower_bounds(const SimulationSetup& simulation);

/// Text for the user: the bounds, and the rollout's `seconds` divided by the larger bound.
[[nodiscard]] std::string lower_bounds_text(const LowerBounds& bounds, double seconds);

}  // namespace paceline::app
