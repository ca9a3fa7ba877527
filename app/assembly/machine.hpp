// The machine that a job runs on or is planned for: its ranks, the compute backend, and the GPU and
// memory that each rank may use.
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

/// The compute backend of the job. Every field except `device` is the same on all ranks.
struct BackendChoice {
  std::string name;          ///< "cpu" | "cuda"
  std::string isa;           ///< instruction set of the CPUs, or architecture of the GPUs
  std::uint64_t memory = 0;  ///< bytes of GPU or host memory that each rank may take; 0: unknown
  int device = -1;           ///< GPU of this rank; -1: the host
  std::string device_name;   ///< name of rank 0's GPU
  std::string explanation;   ///< why this backend was chosen, and warnings; may be empty

  [[nodiscard]] bool on_device() const { return device >= 0; }
};

/// Chooses the backend by engine.backend, engine.isa and `facts`, which describe each rank's host.
/// `planned`: the machine to plan for, or null. If `planned` says nothing about GPUs, the present
/// machine's GPUs are assumed. Collective; a UsageError is thrown on all ranks.
[[nodiscard]] BackendChoice choose_backend(const fabric::MpiEnvironment& mpi,
                                           const io::EngineSection& engine,
                                           std::span<const fabric::RankFacts> facts,
                                           const PlannedMachine* planned);

/// Part of `free` (bytes on a GPU) that a plan may use. CUDA contexts and workspaces need the rest.
[[nodiscard]] std::uint64_t plannable_gpu_memory(std::uint64_t free);

/// Makes the chosen backend. `threads`: this rank's CPU threads, which a GPU backend ignores.
[[nodiscard]] std::unique_ptr<kernels::Backend> make_backend(const BackendChoice& choice,
                                                             int threads);

/// All ranks of the job, and the backend and threads with which this rank computes.
struct Machine {
  std::vector<fabric::RankFacts> ranks;  ///< [ranks] the same on every rank
  BackendChoice backend;                 ///< the same on every rank, except for `device`
  int threads = 1;                       ///< this rank's number of threads; ranks may differ
  bool elsewhere = false;                ///< the job plans or simulates another machine
};

/// Finds the job's machine. `planned`: null, or another machine, for which this job only makes a
/// plan. Such a job has one rank. Collective; throws JobEnded.
[[nodiscard]] Machine find_machine(const fabric::MpiEnvironment& mpi,
                                   const io::EngineSection& engine,
                                   const PlannedMachine* planned = nullptr);

}  // namespace paceline::app
