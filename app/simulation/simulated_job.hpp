// One attempt (a start or a resume) of a simulated job, up to the job's end or a simulated kill.
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
  double seconds = 0;                  ///< virtual time of the kill or of the last response's end
  std::vector<double> ends;            ///< [responses that ended] virtual times, ascending
  std::vector<RankSummary> summaries;  ///< summaries that ranks have sent, each rank at its end
  roles::Progress progress;
  std::uint64_t turns = 0;                 ///< number of turns of all actors (sim::World)
  double wall_seconds = 0;                 ///< real seconds of these turns
  std::uint64_t coordinator_messages = 0;  ///< messages that the coordinator received
  double coordinator_seconds = 0;          ///< CPU seconds of the coordinator's turns with messages
  double coordinator_longest = 0;          ///< CPU seconds of the longest such turn
};

/// Finished responses on the simulated disk, which outlives an attempt.
using Finished = std::map<RequestId, Trajectory>;

/// Runs until every rank has sent its summary, or the job is killed, which happens only to attempt
/// 0. Adds the responses that ranks write to `finished`, and generates none that are there already.
/// Throws Error (internal) if no rank can go on, and as the roles do.
SimulatedAttempt run_attempt(const SimulationSetup& simulation, std::uint32_t attempt,
                             Finished& finished);

}  // namespace paceline::app
