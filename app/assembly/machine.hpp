// The machine that a job runs on, or is planned for.
#pragma once

#include <vector>

#include "app/assembly/backend_choice.hpp"
#include "app/simulation/planned_machine.hpp"
#include "io/config/run_config.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// All ranks of the job, and the backend and threads with which this rank computes.
struct Machine {
  std::vector<fabric::RankFacts> ranks;  ///< [ranks] the same on every rank
  BackendChoice backend;                 ///< the same on every rank, except this rank's device
  int threads = 1;                       ///< threads of this rank; other ranks may differ
  bool elsewhere = false;                ///< the job is only planned for this machine
};

/// Finds the job's machine. `engine` chooses backend and threads. `planned`: the machine that a job
/// on one rank is only planned for; null: the job's own machine. Collective; throws JobEnded.
[[nodiscard]] Machine find_machine(const fabric::MpiEnvironment& mpi,
                                   const io::EngineSection& engine,
                                   const PlannedMachine* planned = nullptr);

}  // namespace paceline::app
