// Machines as files: what a process takes its memory, NUMA nodes and huge pages to be.
#include "runtime/fabric/host_facts.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::fabric {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

class Machine {
 public:
  Machine() {
    std::string name = (fs::temp_directory_path() / "paceline-machine-XXXXXX").string();
    root = mkdtemp(name.data());
    put("/proc/meminfo", "MemTotal: 67108864 kB\nMemFree: 1024 kB\nMemAvailable: 33554432 kB\n");
  }
  ~Machine() { fs::remove_all(root); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void put(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  void put(const std::string& path, std::uint64_t number) const {
    put(path, std::to_string(number) + "\n");
  }
  void expect(std::uint64_t bytes, MemoryBound bound) const {
    const HostMemory memory = available_memory(root);
    EXPECT_EQ(memory.bytes, bytes);
    EXPECT_EQ(memory.bound, bound);
  }

  std::string root;
};

/// A job under Slurm with control groups of version 2.
void enter_v2(const Machine& machine) {
  machine.put("/proc/self/cgroup", "0::/system.slice/job_7/step_0/task_1\n");
  machine.put("/proc/self/mountinfo",
              "21 1 0:20 / / rw - ext4 /dev/sda rw\n"
              "34 21 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
}

void enter_v1(const Machine& machine, const std::string& mounted = "/") {
  machine.put("/proc/self/cgroup",
              "9:name=systemd:/\n4:cpu,memory:/slurm/uid_0/job_7\n3:cpuset:/other\n");
  machine.put("/proc/self/mountinfo",
              "32 31 0:29 / /cg/cpuset rw - cgroup cgroup rw,cpuset\n"
              "35 31 0:32 " +
                  mounted + " /cg/memory rw - cgroup cgroup rw,cpu,memory\n");
}

TEST(HostFacts, WithoutLimitsFreeMemoryCounts) {
  const Machine machine;
  machine.expect(32 * kGiB, MemoryBound::free);
  enter_v2(machine);
  machine.put("/sys/fs/cgroup/system.slice/job_7/memory.max", "max\n");
  machine.expect(32 * kGiB, MemoryBound::free);
}

TEST(HostFacts, TheJobsLimitCountsLessWhatItUses) {
  const Machine machine;
  enter_v2(machine);
  const std::string job = "/sys/fs/cgroup/system.slice/job_7";
  machine.put(job + "/memory.max", 8 * kGiB);
  machine.put(job + "/step_0/task_1/memory.max", "max\n");
  machine.expect(8 * kGiB, MemoryBound::cgroup_v2);
  machine.put(job + "/memory.current", 3 * kGiB);
  machine.expect(5 * kGiB, MemoryBound::cgroup_v2);
  // Pages of files, as those of mapped weights, make way.
  machine.put(job + "/memory.stat", "anon 5\ninactive_file " + std::to_string(kGiB) +
                                        "\nactive_file " + std::to_string(kGiB) + "\n");
  machine.expect(7 * kGiB, MemoryBound::cgroup_v2);
  machine.put(job + "/memory.high", 6 * kGiB);
  machine.expect(5 * kGiB, MemoryBound::cgroup_v2);
  // A limit above what is free bounds nothing.
  machine.put(job + "/memory.high", "max\n");
  machine.put(job + "/memory.max", 60 * kGiB);
  machine.expect(32 * kGiB, MemoryBound::free);
}

TEST(HostFacts, TheLeastOfAllGroupsAboveCounts) {
  const Machine machine;
  enter_v2(machine);
  machine.put("/sys/fs/cgroup/system.slice/memory.max", 4 * kGiB);
  machine.put("/sys/fs/cgroup/system.slice/job_7/memory.max", 16 * kGiB);
  machine.put("/sys/fs/cgroup/system.slice/job_7/step_0/memory.max", 12 * kGiB);
  machine.expect(4 * kGiB, MemoryBound::cgroup_v2);
}

TEST(HostFacts, GroupsOfVersion1) {
  const Machine machine;
  enter_v1(machine);
  const std::string job = "/cg/memory/slurm/uid_0/job_7";
  machine.put("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  machine.expect(32 * kGiB, MemoryBound::free);
  machine.put(job + "/memory.limit_in_bytes", 10 * kGiB);
  machine.put(job + "/memory.usage_in_bytes", 4 * kGiB);
  machine.put(job + "/memory.stat", "inactive_file 0\ntotal_inactive_file " + std::to_string(kGiB) +
                                        "\ntotal_active_file 0\n");
  machine.expect(7 * kGiB, MemoryBound::cgroup_v1);
}

TEST(HostFacts, AContainerSeesItsOwnGroupAtTheTop) {
  const Machine machine;
  enter_v1(machine, "/slurm/uid_0/job_7");
  machine.put("/cg/memory/memory.limit_in_bytes", 2 * kGiB);
  machine.expect(2 * kGiB, MemoryBound::cgroup_v1);
  // Of a group that the mount does not show, the top is the nearest.
  enter_v1(machine, "/elsewhere");
  machine.expect(2 * kGiB, MemoryBound::cgroup_v1);
}

TEST(HostFacts, AGroupThatIsFullLeavesNextToNothingAndIsNotUnknown) {
  const Machine machine;
  enter_v2(machine);
  machine.put("/sys/fs/cgroup/system.slice/job_7/memory.max", kGiB);
  machine.put("/sys/fs/cgroup/system.slice/job_7/memory.current", 2 * kGiB);
  machine.expect(1, MemoryBound::cgroup_v2);
}

TEST(HostFacts, NumaNodesOfTheAffinityMask) {
  const Machine machine;
  machine.put("/sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
  machine.put("/sys/devices/system/node/node1/cpulist", "4-7,12-15,64\n");
  machine.put("/sys/devices/system/node/online", "0-1\n");
  const auto nodes = [&](std::uint64_t low, std::uint64_t high) {
    const std::uint64_t mask[] = {low, high};
    return numa_nodes(mask, machine.root);
  };
  EXPECT_EQ(nodes(0xF0F, 0), 0b01U);
  EXPECT_EQ(nodes(0x10, 0), 0b10U);
  EXPECT_EQ(nodes(0x18, 0), 0b11U);
  EXPECT_EQ(nodes(0x1, 1), 0b11U);
  EXPECT_EQ(numa_nodes({}, machine.root + "/nowhere"), 0b1U);
}

TEST(HostFacts, HugePages) {
  const Machine machine;
  EXPECT_FALSE(huge_pages(machine.root)) << "a kernel without them";
  const std::string file = "/sys/kernel/mm/transparent_hugepage/enabled";
  machine.put(file, "always [madvise] never\n");
  EXPECT_TRUE(huge_pages(machine.root));
  machine.put(file, "[always] madvise never\n");
  EXPECT_TRUE(huge_pages(machine.root));
  machine.put(file, "always madvise [never]\n");
  EXPECT_FALSE(huge_pages(machine.root));
}

TEST(RankFacts, OwnCoresAddUpToWhatTheNodeHas) {
  const auto of_all = [](std::int32_t cores, std::int32_t sharers) {
    std::int32_t sum = 0;
    RankFacts facts;
    facts.cores = cores;
    facts.sharers = sharers;
    for (facts.local_rank = 0; facts.local_rank < sharers; ++facts.local_rank)
      sum += facts.own_cores();
    return sum;
  };
  EXPECT_EQ(of_all(2, 4), 2) << "more ranks than cores";
  EXPECT_EQ(of_all(7, 3), 7);
  EXPECT_EQ(of_all(64, 8), 64);
  EXPECT_EQ(of_all(4, 1), 4) << "cores of its own";
}

}  // namespace
}  // namespace paceline::fabric
