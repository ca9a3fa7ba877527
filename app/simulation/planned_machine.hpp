// A machine for which `paceline check`, on another machine, plans a run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// The planned machine. If `nodes` is absent, it has one node. If `ranks` and `ranks_per_node` are
/// both absent, each node has one rank. Other absent fields are taken from the machine that plans,
/// but without `cores` a node gets at least one core for each rank, and with `gpu_memory` but no
/// `gpus` one GPU for each rank.
struct PlannedMachine {
  static constexpr int kMost = 1 << 20;  ///< limit on nodes, ranks, cores and GPUs

  std::optional<int> ranks;  ///< number of all ranks, spread evenly over the nodes
  std::optional<int> nodes;
  std::optional<int> ranks_per_node;
  std::optional<int> cores;                  ///< cores of a node
  std::optional<std::uint64_t> host_memory;  ///< bytes of memory of a node
  std::optional<int> gpus;                   ///< GPUs of a node
  std::optional<std::uint64_t> gpu_memory;   ///< bytes of memory of each GPU
  /// Whether the command line, and not only Slurm's environment, describes the machine. If so,
  /// weights and tokenizer need not exist.
  bool stated = false;
  bool gpus_stated = false;  ///< the command line says that GPUs compute

  /// Whether any field above `stated` is set. If not, `paceline check` plans for its own job.
  [[nodiscard]] bool elsewhere() const {
    return ranks || nodes || ranks_per_node || cores || host_memory || gpus || gpu_memory;
  }
};

/// Sets `stated` and `gpus_stated`. In a Slurm job, takes absent `cores`, `host_memory`, `gpus`
/// and, unless `ranks` is set, `nodes` and `ranks_per_node` from Slurm's environment.
[[nodiscard]] PlannedMachine with_slurm(PlannedMachine machine);

/// [ranks] Facts about each rank of the machine. `here`: facts about this process. Throws
/// UsageError if there are more than kMost ranks, or if they do not spread evenly over the nodes.
[[nodiscard]] std::vector<fabric::RankFacts> facts_of(const PlannedMachine& machine,
                                                      const fabric::RankFacts& here);

}  // namespace paceline::app
