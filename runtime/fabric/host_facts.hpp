// Facts about the machine: memory that a process may take, NUMA domains, huge pages. `root`:
// directory that contains proc and sys, for tests. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace paceline::fabric {

/// The limit that bounds the memory of a process.
enum class MemoryBound : std::int32_t {
  unknown = 0,
  free = 1,       ///< free memory
  cgroup_v1 = 2,  ///< rest of a control group's limit, as set by batch systems
  cgroup_v2 = 3,
  stated = 4,  ///< stated by the user, when planning for another machine
};
[[nodiscard]] const char* name_of(MemoryBound bound);

struct HostMemory {
  std::uint64_t bytes = 0;  ///< 0: unknown
  MemoryBound bound = MemoryBound::unknown;
};

/// The minimum of the machine's free memory and of the memory that the limits of this process's
/// control groups and of their parents leave. Memory that only caches files counts as free.
[[nodiscard]] HostMemory available_memory(const std::string& root = "");

/// NUMA domains of these cores, one bit each; domain n has bit n % 64. Only domain 0 where the
/// system does not say. `cores`: one bit for each core.
[[nodiscard]] std::uint64_t numa_nodes(std::span<const std::uint64_t> cores,
                                       const std::string& root = "");

/// Whether the system may give huge pages to memory that requests them.
[[nodiscard]] bool huge_pages(const std::string& root = "");

}  // namespace paceline::fabric
