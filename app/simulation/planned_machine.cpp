#include "app/simulation/planned_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "io/config/quantity.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

/// The number with which a variable's value begins, such as the 8 of "8(x2),4"; nullopt: none.
std::optional<std::uint64_t> number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view all(text);
  return io::parse_unsigned(all.substr(0, all.find_first_not_of("0123456789")));
}

std::optional<int> count_of(const char* variable) {
  const auto number = number_of(variable);
  const bool sensible = number && *number > 0 && *number <= PlannedMachine::kMost;
  return sensible ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

/// The number of the first of these variables whose value begins with a number from 1 to kMost.
template <typename... Names>
std::optional<int> count_of(const char* first, Names... others) {
  const std::optional<int> count = count_of(first);
  return count ? count : count_of(others...);
}

int ranks_of_node(const PlannedMachine& machine) {
  const int evenly = machine.ranks ? *machine.ranks / machine.nodes.value_or(1) : 1;
  return machine.ranks_per_node.value_or(evenly);
}

}  // namespace

PlannedMachine with_slurm(PlannedMachine machine) {
  machine.stated = machine.elsewhere();
  machine.gpus_stated = machine.gpus.value_or(machine.gpu_memory ? 1 : 0) > 0;
  if (std::getenv("SLURM_JOB_ID") == nullptr) return machine;
  if (!machine.nodes && !machine.ranks)
    machine.nodes = count_of("SLURM_JOB_NUM_NODES", "SLURM_NNODES");
  if (!machine.ranks_per_node && !machine.ranks)
    machine.ranks_per_node = count_of("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  if (!machine.gpus) machine.gpus = count_of("SLURM_GPUS_ON_NODE");
  if (const auto of_rank = count_of("SLURM_CPUS_PER_TASK"); of_rank && !machine.cores) {
    const std::int64_t cores = std::int64_t{*of_rank} * ranks_of_node(machine);
    machine.cores = static_cast<int>(std::min<std::int64_t>(cores, PlannedMachine::kMost));
  }
  // Slurm gives memory in MiB; 0 means all memory of the node.
  if (const auto mib = number_of("SLURM_MEM_PER_NODE"); mib && *mib > 0 && !machine.host_memory)
    machine.host_memory = *mib << 20;
  return machine;
}

std::vector<fabric::RankFacts> facts_of(const PlannedMachine& machine,
                                        const fabric::RankFacts& here) {
  const int nodes = machine.nodes.value_or(1);
  const int ranks = ranks_of_node(machine);
  if (machine.ranks && std::int64_t{nodes} * ranks != *machine.ranks) {
    throw UsageError(fmt::format("--ranks: {} do not spread evenly over {}{}",
                                 counted(*machine.ranks, "rank"), counted(nodes, "node"),
                                 machine.ranks_per_node ? fmt::format(" of {}", ranks) : ""));
  }
  if (std::int64_t{nodes} * ranks > PlannedMachine::kMost) {
    throw UsageError(
        fmt::format("--nodes: {} of {} are more than the {} ranks that can be planned for",
                    counted(nodes, "node"), counted(ranks, "rank"), PlannedMachine::kMost));
  }
  fabric::RankFacts fact = here;
  fact.local_ranks = ranks;
  fact.sharers = ranks;
  // By default a node has as many cores as this machine, but at least one core for each rank.
  fact.cores = machine.cores.value_or(std::max(here.cores, ranks));
  // Host names, NUMA domains and huge pages of the planned nodes are not known.
  std::fill(std::begin(fact.host), std::end(fact.host), '\0');
  std::string_view("planned").copy(fact.host, sizeof fact.host - 1);
  fact.numa_nodes = 1;
  fact.huge_pages = 1;
  if (machine.host_memory) {
    fact.memory_bytes = *machine.host_memory;
    fact.memory_bound = fabric::MemoryBound::stated;
  }
  std::vector<fabric::RankFacts> facts;
  facts.reserve(static_cast<std::size_t>(nodes) * ranks);
  for (fact.node = 0; fact.node < nodes; ++fact.node) {
    for (fact.local_rank = 0; fact.local_rank < ranks; ++fact.local_rank) facts.push_back(fact);
  }
  return facts;
}

}  // namespace paceline::app
