// A machine that a run is planned for without being on it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// What is absent is as on this machine.
struct PlannedMachine {
  static constexpr int kMost = 1 << 20;  ///< nodes, ranks or GPUs

  std::optional<int> ranks;  ///< in all, spread evenly over the nodes
  std::optional<int> nodes;
  std::optional<int> ranks_per_node;
  std::optional<int> cores;                  ///< of a node
  std::optional<std::uint64_t> host_memory;  ///< bytes of a node
  std::optional<int> gpus;                   ///< of a node
  std::optional<std::uint64_t> gpu_memory;   ///< bytes of each
  /// By the command line, and not by Slurm's environment alone: it is a plan, for which the run's
  /// weights and tokenizer need not be there.
  bool stated = false;
  bool gpus_stated = false;  ///< likewise: they are to compute

  /// Whether it differs from one rank on this machine.
  [[nodiscard]] bool elsewhere() const {
    return ranks || nodes || ranks_per_node || cores || host_memory || gpus || gpu_memory;
  }
};

/// What the command line says of a machine, completed by Slurm's environment, which says nothing
/// outside a job.
[[nodiscard]] PlannedMachine with_slurm(PlannedMachine machine);

/// [ranks]: what each rank would say of itself. `here`: of this process. Throws UsageError on more
/// than kMost ranks, and on ranks in all that are not those of the nodes.
[[nodiscard]] std::vector<fabric::RankFacts> facts_of(const PlannedMachine& machine,
                                                      const fabric::RankFacts& here);

}  // namespace paceline::app
