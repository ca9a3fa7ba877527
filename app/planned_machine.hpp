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
  std::optional<int> cores_per_rank;
  std::optional<std::uint64_t> memory;  ///< bytes of a node or, where it has GPUs, of each of those
  std::optional<int> gpus;              ///< of a node

  /// Whether it differs from one rank on this machine.
  [[nodiscard]] bool elsewhere() const {
    return ranks || nodes || ranks_per_node || memory || gpus;
  }
};

/// `machine` with what it leaves open as Slurm's environment says: nothing outside a job.
[[nodiscard]] PlannedMachine with_slurm(PlannedMachine machine);

/// [ranks]: what each rank would say of itself. `here`: of this process. Throws UsageError on more
/// than kMost ranks, and on ranks in all that are not those of the nodes.
[[nodiscard]] std::vector<fabric::RankFacts> facts_of(const PlannedMachine& machine,
                                                      const fabric::RankFacts& here);

}  // namespace paceline::app
