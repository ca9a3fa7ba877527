// What a process can learn of its machine: the memory it may take, its NUMA nodes, huge pages.
// `root` is where proc and sys lie, for tests. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace paceline::fabric {

/// What bounds the memory of a node.
enum class MemoryBound : std::int32_t {
  unknown = 0,
  free = 1,       ///< what nobody uses
  cgroup_v1 = 2,  ///< what a control group leaves of its limit, which batch systems set
  cgroup_v2 = 3,
  stated = 4,  ///< said by the user, of a node that is only planned
};
[[nodiscard]] const char* name_of(MemoryBound bound);

struct HostMemory {
  std::uint64_t bytes = 0;  ///< 0: unknown
  MemoryBound bound = MemoryBound::unknown;
};

/// The least of what is free on the machine and of what this process's control groups, and those
/// above them, leave of their limits. Memory that only caches files counts as free in both.
[[nodiscard]] HostMemory available_memory(const std::string& root = "");

/// NUMA nodes that have any of these cores, a bit each; node 64 has the bit of node 0 again, and so
/// on. The first alone where the system does not say. `cores`: a bit each.
[[nodiscard]] std::uint64_t numa_nodes(std::span<const std::uint64_t> cores,
                                       const std::string& root = "");

/// Whether memory that asks for huge pages may get them.
[[nodiscard]] bool huge_pages(const std::string& root = "");

}  // namespace paceline::fabric
