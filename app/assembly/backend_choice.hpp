// Which backend computes, on which device, with how much memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "app/simulation/planned_machine.hpp"
#include "io/config/run_config.hpp"
#include "kernels/backend.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// The same on every rank, but for `device`.
struct BackendChoice {
  std::string name;          ///< "cpu" | "cuda"
  std::string isa;           ///< one that all ranks have
  std::uint64_t memory = 0;  ///< bytes a rank may take, least of all ranks; 0: unknown
  int device = -1;           ///< of this rank; -1: the host
  std::string device_name;   ///< of rank 0's device
  std::string explanation;   ///< why it was chosen, where it was not set

  [[nodiscard]] bool on_device() const { return device >= 0; }
};

/// engine.backend, engine.isa and what all ranks have. `facts`: [ranks]. `planned`: null, or the
/// machine whose ranks these are; GPUs it does not speak of are those of this one. Collective;
/// throws UsageError on every rank.
[[nodiscard]] BackendChoice choose_backend(const fabric::MpiEnvironment& mpi,
                                           const io::EngineSection& engine,
                                           std::span<const fabric::RankFacts> facts,
                                           const PlannedMachine* planned);

/// Of a device's free memory, what may be planned with: contexts, graphs and workspaces need some.
[[nodiscard]] std::uint64_t plannable_gpu_memory(std::uint64_t free);

/// `threads`: of this rank, for the cpu.
[[nodiscard]] std::unique_ptr<kernels::Backend> make_backend(const BackendChoice& choice,
                                                             int threads);

}  // namespace paceline::app
