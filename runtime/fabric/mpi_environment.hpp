// A process's place in the job: MPI, the process's rank and node, and the cores that it may use.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/wire.hpp"
#include "runtime/fabric/host_facts.hpp"

namespace paceline::fabric {

/// Facts of a rank. All ranks gather them, so that every rank plans from the same facts.
struct RankFacts {
  char host[64] = {};
  std::int32_t node = 0;           ///< index of its node; nodes are ordered by first rank
  std::int32_t local_rank = 0;     ///< index of the rank within its node
  std::int32_t local_ranks = 1;    ///< ranks on its node
  std::int32_t cores = 1;          ///< cores that its affinity mask allows
  std::int32_t sharers = 1;        ///< ranks of its node with an overlapping mask, itself included
  std::int32_t shares_memory = 0;  ///< 1: ranks of its node can map each other's memory
  std::int32_t huge_pages = 1;     ///< 0: its node has no huge pages
  std::uint64_t numa_nodes = 1;    ///< NUMA domains of its cores, one bit each
  std::uint64_t memory_bytes = 0;  ///< bytes free for the job on its node at the start; 0: unknown
  MemoryBound memory_bound = MemoryBound::unknown;

  /// The rank's part of `memory_bytes`.
  [[nodiscard]] std::uint64_t own_memory() const { return memory_bytes / local_ranks; }
  /// Number of cores that are this rank's part of the cores that it shares. The parts of a node's
  /// ranks add up to the node's cores, so some ranks have none where there are more ranks than
  /// cores.
  [[nodiscard]] std::int32_t own_cores() const {
    const std::int64_t which = local_rank % sharers;
    return static_cast<std::int32_t>(cores * (which + 1) / sharers - cores * which / sharers);
  }
};

/// MPI is initialised from construction to destruction of this object. One per process.
class MpiEnvironment {
 public:
  MpiEnvironment(int* argc, char*** argv);
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// Facts of every rank, in rank order. Collective.
  [[nodiscard]] std::vector<RankFacts> gather_facts() const;
  /// Waits for all ranks without spinning, and calls `meanwhile` repeatedly. Collective; only at
  /// the job's start and end.
  void barrier(const std::function<void()>& meanwhile = [] {}) const;
  /// The largest `value` of all ranks, and the lowest rank that has it. Collective.
  struct MaxAt {
    int value;
    int rank;
  };
  [[nodiscard]] MaxAt max_of(int value) const;
  /// As max_of(), for idle ranks: a rank that waits for others sleeps for `pause` at a time.
  [[nodiscard]] MaxAt idle_max_of(int value, std::chrono::microseconds pause) const;
  /// Every rank's bytes, of any number below 2 GiB in all, in rank order. Collective.
  [[nodiscard]] std::vector<std::vector<std::byte>> all_gather(
      std::span<const std::byte> mine) const;
  /// Every rank's value, in rank order. Collective.
  template <Plain T>
  [[nodiscard]] std::vector<T> all_values(const T& mine) const {
    std::vector<T> all(size_);
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    return all;
  }
  /// Calls `use` on rank 0 with every rank's bytes, of any number, in rank order, one rank at a
  /// time. Collective. If `use` throws, other ranks may wait for rank 0 forever: the job must end.
  void collect(std::span<const std::byte> mine,
               const std::function<void(std::span<const std::byte>)>& use) const;
  /// Sends rank 0's bytes, fewer than 2 GiB, to all ranks. Collective.
  void broadcast(std::vector<std::byte>& bytes) const;
  [[nodiscard]] static std::string library();

 private:
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace paceline::fabric
