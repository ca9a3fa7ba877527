// One attempt of a simulated job, from its first turn to its end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/simulation/simulation_setup.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/roles/coordinator.hpp"

namespace paceline::app {

/// The outcome of an attempt.
struct SimulatedAttempt {
  bool complete = false;               ///< every request ended
  double seconds = 0;                  ///< time at which the last response ended or a kill came
  std::vector<double> ends;            ///< seconds at which responses ended, ascending
  std::vector<RankSummary> summaries;  ///< summaries of the ranks that reported
  roles::Progress progress;
  std::uint64_t turns = 0;
  double wall_seconds = 0;  ///< real time of the attempt
  std::uint64_t coordinator_messages = 0;
  double coordinator_seconds = 0;  ///< processor seconds of the coordinator's turns
  double coordinator_longest = 0;  ///< processor seconds of the coordinator's longest turn
};

/// Responses that a simulated disk holds.
using Finished = std::map<RequestId, Trajectory>;

/// Runs until every rank has reported, or the job is killed. Adds flushed responses to `finished`;
/// responses already in it are not generated again. `attempt`: number of the attempt, for telemetry
/// and random faults. Throws Error (internal) if the job comes to a halt, and as the roles do.
SimulatedAttempt run_attempt(const SimulationSetup& simulation, std::uint32_t attempt,
                             Finished& finished);

}  // namespace paceline::app
