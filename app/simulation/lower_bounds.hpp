// How soon a simulated rollout could end at best.
#pragma once

#include <string>

#include "app/simulation/simulation_setup.hpp"

namespace paceline::app {

/// Seconds below which no schedule of the run's ranks is foreseen, by its cost tables and the
/// speeds of speculation_speed.hpp: with the best degree, mode and window, whatever the
/// configuration chooses among them, and chains of one drafter for each request. Mean acceptance
/// stands for its changes, so luck and several drafters beside each other may go below.
struct LowerBounds {
  double longest = 0;  ///< of the response that takes longest when it is alone on a group
  double work = 0;     ///< of all tokens on all ranks, each at its best batch
  [[nodiscard]] double larger() const { return longest > work ? longest : work; }
};
[[nodiscard]] LowerBounds lower_bounds(const SimulationSetup& simulation);

/// For people: the bounds, and how far from the larger a rollout of so many seconds is.
[[nodiscard]] std::string lower_bounds_text(const LowerBounds& bounds, double seconds);

}  // namespace paceline::app
