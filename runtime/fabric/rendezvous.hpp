// Places in a piece of work at which ranks of a node wait for one another.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>

#include "runtime/fabric/shared_memory.hpp"

namespace paceline::fabric {

/// Lets ranks of a node do the same work at the same time. Places are numbered, and a rank's
/// numbers rise. A rank need not come to every place: others wait for it until it has come to the
/// same place or a later one. A rank leaves at the object's end, and nobody waits for it after
/// that.
class Rendezvous {
 public:
  /// A rank that does not `work` is never waited for. Returns nullptr where ranks cannot share
  /// memory. Collective over all ranks of the job.
  static std::unique_ptr<Rendezvous> make(bool work);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Comes to a place, > 0, and waits for the node's other ranks, for at most `seconds` in all.
  void come(std::uint64_t place, double seconds);

 private:
  struct Post;
  Rendezvous(int rank, int size, SharedMemory memory);
  [[nodiscard]] Post& post(int rank) const;

  int rank_;
  int size_;
  SharedMemory memory_;
};

}  // namespace paceline::fabric
