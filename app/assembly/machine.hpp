// The machine that a job runs on, or is planned for, and the choice of the backend, its device and
// its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/simulation/planned_machine.hpp"
#include "io/config/run_config.hpp"
#include "kernels/backend.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// The backend of the job: all fields but `device` are the same on every rank.
struct BackendChoice {
  std::string name;          ///< "cpu" | "cuda"
  std::string isa;           ///< instruction set that all ranks have
  std::uint64_t memory = 0;  ///< bytes of memory that each rank may take; 0: unknown
  int device = -1;           ///< GPU of this rank; -1: the host
  std::string device_name;   ///< name of rank 0's GPU
  std::string explanation;   ///< why this backend was chosen; empty: no reason to give

  [[nodiscard]] bool on_device() const { return device >= 0; }
};

/// Chooses by engine.backend, engine.isa and the hardware that all ranks have. `facts`: [ranks].
/// `planned`: the machine to plan for, or null. If it does not state its GPUs, the GPUs of this
/// machine are planned with. Collective; throws UsageError on every rank.
[[nodiscard]] BackendChoice choose_backend(const fabric::MpiEnvironment& mpi,
                                           const io::EngineSection& engine,
                                           std::span<const fabric::RankFacts> facts,
                                           const PlannedMachine* planned);

/// The part of a GPU's free memory to plan with: contexts, graphs and workspaces need the rest.
[[nodiscard]] std::uint64_t plannable_gpu_memory(std::uint64_t free);

/// Makes the chosen backend. `threads`: number of this rank's threads; a GPU's backend ignores it.
[[nodiscard]] std::unique_ptr<kernels::Backend> make_backend(const BackendChoice& choice,
                                                             int threads);

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
