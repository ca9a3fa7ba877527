// Facts about the machine: memory that a process may take, its NUMA nodes, huge pages. `root`:
// where proc and sys lie, for tests. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace paceline::fabric {

/// The bound of a node's memory.
enum class MemoryBound : std::int32_t {
  unknown = 0,
  free = 1,       ///< free memory
  cgroup_v1 = 2,  ///< rest of a control group's limit, as batch systems set it
  cgroup_v2 = 3,
  stated = 4,  ///< by the user, for a node that is only planned
};
[[nodiscard]] const char* name_of(MemoryBound bound);

struct HostMemory {
  std::uint64_t bytes = 0;  ///< 0: unknown
  MemoryBound bound = MemoryBound::unknown;
};

/// The least of the machine's free memory and the rests of the limits of this process's control
/// groups and their parents. Memory that only caches files counts as free in both.
[[nodiscard]] HostMemory available_memory(const std::string& root = "");

/// NUMA nodes of these cores, a bit each; node 64 has the bit of node 0 again, and so on. The first
/// alone where the system does not say. `cores`: a bit each.
[[nodiscard]] std::uint64_t numa_nodes(std::span<const std::uint64_t> cores,
                                       const std::string& root = "");

/// Whether memory that asks for huge pages may get any.
[[nodiscard]] bool huge_pages(const std::string& root = "");

}  // namespace paceline::fabric
