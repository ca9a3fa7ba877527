#include "runtime/fabric/mpi_environment.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "runtime/fabric/backoff.hpp"
#include "runtime/fabric/shared_memory.hpp"

namespace paceline::fabric {
namespace {

constexpr int kMaskWords = 16;  // 1024 cores

}  // namespace

MpiEnvironment::MpiEnvironment(int* argc, char*** argv) {
  int provided = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw std::runtime_error(
        "this MPI library does not offer MPI_THREAD_MULTIPLE, which the coordinator needs");
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

MpiEnvironment::~MpiEnvironment() { MPI_Finalize(); }

std::vector<RankFacts> MpiEnvironment::gather_facts() const {
  RankFacts mine;
  gethostname(mine.host, sizeof mine.host - 1);
  const HostMemory memory = available_memory();
  mine.memory_bytes = memory.bytes;
  mine.memory_bound = memory.bound;
  mine.huge_pages = huge_pages() ? 1 : 0;

  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::uint64_t words[kMaskWords] = {};
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    mine.cores = CPU_COUNT(&mask);
    static_assert(sizeof mask == sizeof words);
    std::memcpy(words, &mask, sizeof words);
    mine.numa_nodes = numa_nodes(words);
  }

  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &mine.local_rank);
  MPI_Comm_size(node, &mine.local_ranks);
  mine.node = rank_;  // the node's first rank; replaced by an index below
  MPI_Bcast(&mine.node, 1, MPI_INT, 0, node);
  std::vector<std::uint64_t> masks(static_cast<std::size_t>(kMaskWords) * mine.local_ranks);
  MPI_Allgather(words, kMaskWords, MPI_UINT64_T, masks.data(), kMaskWords, MPI_UINT64_T, node);
  mine.shares_memory = share_memory(node, 1) ? 1 : 0;
  MPI_Comm_free(&node);
  mine.sharers = 0;
  for (int r = 0; r < mine.local_ranks; ++r) {
    bool overlaps = false;
    for (int w = 0; w < kMaskWords; ++w) {
      overlaps = overlaps || (masks[static_cast<std::size_t>(r) * kMaskWords + w] & words[w]) != 0;
    }
    mine.sharers += overlaps ? 1 : 0;
  }

  std::vector<RankFacts> all = all_values(mine);
  std::vector<int> index(size_, 0);
  int nodes = 0;
  for (int r = 0; r < size_; ++r) {
    if (all[r].node == r) index[r] = nodes++;
    all[r].node = index[all[r].node];
  }
  return all;
}

void MpiEnvironment::barrier(const std::function<void()>& meanwhile) const {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  Backoff backoff(5000);
  int done = 0;
  while (true) {
    meanwhile();
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return;
    backoff.pause();
  }
}

MpiEnvironment::MaxAt MpiEnvironment::max_of(int value) const {
  const MaxAt mine{value, rank_};
  MaxAt best{};
  MPI_Allreduce(&mine, &best, 1, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD);
  return best;
}

MpiEnvironment::MaxAt MpiEnvironment::idle_max_of(int value,
                                                  std::chrono::microseconds pause) const {
  const MaxAt mine{value, rank_};
  MaxAt best{};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(&mine, &best, 1, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD, &request);
  int done = 0;
  while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), done == 0)
    std::this_thread::sleep_for(pause);
  return best;
}

std::vector<std::vector<std::byte>> MpiEnvironment::all_gather(
    std::span<const std::byte> mine) const {
  const auto count = static_cast<int>(mine.size());
  std::vector<int> counts(size_);
  MPI_Allgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> first(size_, 0);
  std::partial_sum(counts.begin(), counts.end() - 1, first.begin() + 1);
  std::vector<std::byte> all(first.back() + counts.back());
  MPI_Allgatherv(mine.data(), count, MPI_BYTE, all.data(), counts.data(), first.data(), MPI_BYTE,
                 MPI_COMM_WORLD);
  std::vector<std::vector<std::byte>> parts;
  for (int r = 0; r < size_; ++r) {
    const auto part = std::span(all).subspan(first[r], counts[r]);
    parts.emplace_back(part.begin(), part.end());
  }
  return parts;
}

void MpiEnvironment::collect(std::span<const std::byte> mine,
                             const std::function<void(std::span<const std::byte>)>& use) const {
  constexpr int kTag = 1;
  constexpr std::size_t kPiece = std::size_t{1} << 30;  // MPI counts in ints
  std::uint64_t size = mine.size();
  if (rank_ != 0) {
    MPI_Send(&size, 1, MPI_UINT64_T, 0, kTag, MPI_COMM_WORLD);
    for (std::size_t at = 0; at < size; at += kPiece) {
      MPI_Send(mine.data() + at, static_cast<int>(std::min(kPiece, size - at)), MPI_BYTE, 0, kTag,
               MPI_COMM_WORLD);
    }
    return;
  }
  use(mine);
  std::vector<std::byte> bytes;
  for (int r = 1; r < size_; ++r) {
    MPI_Recv(&size, 1, MPI_UINT64_T, r, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    bytes.resize(size);
    for (std::size_t at = 0; at < size; at += kPiece) {
      MPI_Recv(bytes.data() + at, static_cast<int>(std::min(kPiece, size - at)), MPI_BYTE, r, kTag,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    use(bytes);
  }
}

void MpiEnvironment::broadcast(std::vector<std::byte>& bytes) const {
  std::uint64_t size = bytes.size();
  MPI_Bcast(&size, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  bytes.resize(size);
  MPI_Bcast(bytes.data(), static_cast<int>(size), MPI_BYTE, 0, MPI_COMM_WORLD);
}

std::string MpiEnvironment::library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, length);
  return version.substr(0, version.find(','));
}

}  // namespace paceline::fabric
