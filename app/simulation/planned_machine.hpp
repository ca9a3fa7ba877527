// A machine that a run is planned for but does not run on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// The planned machine. An absent field is as on this machine.
struct PlannedMachine {
  static constexpr int kMost = 1 << 20;  ///< nodes, ranks or GPUs

  std::optional<int> ranks;  ///< total, spread evenly over the nodes
  std::optional<int> nodes;
  std::optional<int> ranks_per_node;
  std::optional<int> cores;                  ///< cores of a node
  std::optional<std::uint64_t> host_memory;  ///< bytes of a node
  std::optional<int> gpus;                   ///< GPUs of a node
  std::optional<std::uint64_t> gpu_memory;   ///< bytes of each GPU
  /// Whether the command line, and not only Slurm's environment, describes the machine. The run is
  /// then only planned, and its weights and tokenizer need not be there.
  bool stated = false;
  bool gpus_stated = false;  ///< whether the command line asks for GPUs to compute on

  /// Whether any field is set, so that the machine is not one rank on this machine.
  [[nodiscard]] bool elsewhere() const {
    return ranks || nodes || ranks_per_node || cores || host_memory || gpus || gpu_memory;
  }
};

/// Fills in absent fields from Slurm's environment, inside a Slurm job.
[[nodiscard]] PlannedMachine with_slurm(PlannedMachine machine);

/// [ranks] Facts about each rank of the machine. `here`: facts of this process. Throws UsageError
/// on more than kMost ranks, and if ranks do not spread evenly over nodes.
[[nodiscard]] std::vector<fabric::RankFacts> facts_of(const PlannedMachine& machine,
                                                      const fabric::RankFacts& here);

}  // namespace paceline::app
