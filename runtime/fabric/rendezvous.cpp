#include "runtime/fabric/rendezvous.hpp"

#include <atomic>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/core/stopwatch.hpp"
#include "runtime/fabric/backoff.hpp"

namespace paceline::fabric {
namespace {

constexpr std::uint64_t kLeft = std::numeric_limits<std::uint64_t>::max();

}  // namespace

/// State of a rank that the others read.
struct alignas(128) Rendezvous::Post {
  std::atomic<std::uint64_t> place;  ///< the last place that the rank came to; kLeft: it has left
};

std::unique_ptr<Rendezvous> Rendezvous::make(bool work) {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(node, &rank);
  MPI_Comm_size(node, &size);
  std::optional<SharedMemory> memory = share_memory(node, size * sizeof(Post));
  std::unique_ptr<Rendezvous> made;
  if (memory) made.reset(new Rendezvous(rank, size, std::move(*memory)));
  if (made && !work) made->post(rank).place = kLeft;
  MPI_Barrier(node);  // so that nobody waits for a rank that does not work
  MPI_Comm_free(&node);
  return made;
}

Rendezvous::Rendezvous(int rank, int size, SharedMemory memory)
    : rank_(rank), size_(size), memory_(std::move(memory)) {}

Rendezvous::~Rendezvous() { post(rank_).place = kLeft; }

Rendezvous::Post& Rendezvous::post(int rank) const {
  return reinterpret_cast<Post*>(memory_.bytes().data())[rank];
}

void Rendezvous::come(std::uint64_t place, double seconds) {
  post(rank_).place.store(place, std::memory_order_release);
  const double until = steady_seconds() + seconds;
  for (int other = 0; other < size_; ++other) {
    Backoff backoff;
    while (post(other).place.load(std::memory_order_acquire) < place && steady_seconds() < until)
      backoff.pause();
  }
}

}  // namespace paceline::fabric
