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

/// What an attempt came to.
struct SimulatedAttempt {
  bool complete = false;               ///< every request ended
  double seconds = 0;                  ///< until the last response ended, or a rank died
  std::vector<double> ends;            ///< of responses, ascending, seconds
  std::vector<RankSummary> summaries;  ///< of ranks that came to their end
  roles::Progress progress;
  std::uint64_t turns = 0;
  double wall_seconds = 0;  ///< of real time
  std::uint64_t coordinator_messages = 0;
  double coordinator_seconds = 0;  ///< of real time, in them
  double coordinator_longest = 0;  ///< of one turn
};

/// Responses that are safe on disk.
using Finished = std::map<RequestId, Trajectory>;

/// Runs until every rank has reported, or one dies. Adds what was flushed to `finished`, whose
/// responses are not generated again. `attempt`: its number, of which telemetry and chance go by.
/// Throws Error (internal) where the job comes to a halt, and as the roles do.
SimulatedAttempt run_attempt(const SimulationSetup& simulation, std::uint32_t attempt,
                             Finished& finished);

}  // namespace paceline::app
