#include "runtime/fabric/host_facts.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline::fabric {
namespace fs = std::filesystem;
namespace {

/// The number at the beginning of a file; nullopt where there is no file, or a word ("max") in it.
std::optional<std::uint64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

/// The value of a line "key value", or "key: value"; 0 where there is none.
std::uint64_t value_in(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return 0;
}

/// File names of a version of control groups.
struct CgroupFiles {
  MemoryBound bound;
  std::string_view file_system;  ///< type of its mounts
  std::string_view controller;   ///< option of the mount to use; empty: any mount
  std::vector<std::string_view> limits;
  std::string_view usage;
  std::vector<std::string_view> cached;  ///< in memory.stat: reclaimable pages of files
};

const CgroupFiles kVersion1{MemoryBound::cgroup_v1,
                            "cgroup",
                            "memory",
                            {"memory.limit_in_bytes"},
                            "memory.usage_in_bytes",
                            {"total_inactive_file", "total_active_file"}};
const CgroupFiles kVersion2{
    MemoryBound::cgroup_v2,        "cgroup2",        "",
    {"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file"}};

bool in_list(std::string_view list, std::string_view item) {
  std::istringstream words{std::string(list)};
  for (std::string word; std::getline(words, word, ',');) {
    if (word == item) return true;
  }
  return false;
}

/// The path of this process's group, from lines "number:controllers:path" of /proc/self/cgroup.
std::optional<std::string> group_path(const std::string& root, const CgroupFiles& files) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (files.controller.empty() ? controllers.empty() : in_list(controllers, files.controller))
      return line.substr(second + 1);
  }
  return std::nullopt;
}

struct Mount {
  std::string group;  ///< path of the group at the top of the mount
  std::string place;
};

/// The mount of control groups, from lines of /proc/self/mountinfo: "id parent device root place
/// options [more]... - type source options".
std::optional<Mount> mount_of(const std::string& root, const CgroupFiles& files) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream front(line.substr(0, dash));
    std::istringstream back(line.substr(dash + 3));
    std::string skipped;
    std::string type;
    std::string options;
    Mount mount;
    front >> skipped >> skipped >> skipped >> mount.group >> mount.place;
    back >> type >> skipped >> options;
    if (type == files.file_system &&
        (files.controller.empty() || in_list(options, files.controller)))
      return mount;
  }
  return std::nullopt;
}

/// Bytes of a group's limit that are not in use; nullopt: it has no limit.
std::optional<std::uint64_t> left_of(const fs::path& group, const CgroupFiles& files) {
  std::optional<std::uint64_t> limit;
  for (const std::string_view name : files.limits) {
    if (const auto one = number_in(group / name)) limit = std::min(limit.value_or(*one), *one);
  }
  if (!limit) return std::nullopt;
  const std::uint64_t used = number_in(group / files.usage).value_or(0);
  std::uint64_t cached = 0;
  for (const std::string_view key : files.cached) cached += value_in(group / "memory.stat", key);
  return *limit - std::min(*limit, used - std::min(used, cached));
}

/// Bounds `memory` by the bytes that this process's group and each of its parents have left.
void bound_by(const std::string& root, const CgroupFiles& files, HostMemory& memory) {
  const std::optional<std::string> path = group_path(root, files);
  const std::optional<Mount> mount = mount_of(root, files);
  if (!path || !mount) return;
  // In a container, the group may be at the top of the mount, or its path may belong to another
  // namespace.
  std::string below = *path;
  if (mount->group != "/") {
    below = below.starts_with(mount->group) ? below.substr(mount->group.size()) : "";
  }
  if (below.find("..") != std::string::npos) below.clear();
  fs::path group = root + mount->place;
  const fs::path top = group;
  group += below;
  while (true) {
    const std::optional<std::uint64_t> left = left_of(group, files);
    if (left && (memory.bytes == 0 || *left < memory.bytes))
      memory = {std::max<std::uint64_t>(*left, 1), files.bound};
    if (group.native().size() <= top.native().size()) return;
    group = group.parent_path();
  }
}

}  // namespace

const char* name_of(MemoryBound bound) {
  return name_in(std::array{"unknown", "free memory", "memory left by the job's limit, cgroup v1",
                            "memory left by the job's limit, cgroup v2", "as planned for"},
                 bound);
}

HostMemory available_memory(const std::string& root) {
  HostMemory memory;
  if (const std::uint64_t kilobytes = value_in(root + "/proc/meminfo", "MemAvailable:"))
    memory = {kilobytes * 1024, MemoryBound::free};
  bound_by(root, kVersion1, memory);
  bound_by(root, kVersion2, memory);
  return memory;
}

std::uint64_t numa_nodes(std::span<const std::uint64_t> cores, const std::string& root) {
  std::uint64_t nodes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    if (std::sscanf(name.c_str(), "node%d", &number) != 1) continue;
    std::ifstream file(entry.path() / "cpulist");  // "0-3,8-11"
    bool ours = false;
    for (std::string range; std::getline(file, range, ',');) {
      std::istringstream text(range);
      std::size_t first = 0;
      std::size_t last = 0;
      char dash = 0;
      if (!(text >> first)) continue;
      if (!(text >> dash >> last)) last = first;
      for (std::size_t core = first; core <= last && core < cores.size() * 64; ++core)
        ours = ours || (cores[core / 64] >> (core % 64) & 1) != 0;
    }
    if (ours) nodes |= std::uint64_t{1} << number % 64;
  }
  return nodes == 0 ? 1 : nodes;
}

bool huge_pages(const std::string& root) {
  std::ifstream file(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;  // "always madvise [never]": brackets mark the setting
  std::getline(file, line);
  return file && line.find("[never]") == std::string::npos;
}

}  // namespace paceline::fabric
