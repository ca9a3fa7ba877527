// An owner of an MPI communicator, and a broadcast that gives rank 0's values to all ranks.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/core/wire.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

class Communicator {
 public:
  /// A communicator of all ranks. Collective.
  static Communicator duplicate() {
    Communicator made;
    MPI_Comm_dup(MPI_COMM_WORLD, &made.comm_);
    return made;
  }
  /// A communicator of the ranks with the same `color`; MPI_COMM_NULL if `color` < 0. Collective.
  static Communicator split(int color, int rank) {
    Communicator made;
    MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, rank, &made.comm_);
    return made;
  }
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  Communicator& operator=(Communicator&&) = delete;
  ~Communicator() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  [[nodiscard]] MPI_Comm get() const { return comm_; }

 private:
  Communicator() = default;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// Sets `values` on every rank to the values of rank 0. WireWriter must support the types of all
/// values. Collective.
template <typename... Values>
void broadcast(const fabric::MpiEnvironment& mpi, Values&... values) {
  WireWriter writer;
  writer.put_all(values...);
  std::vector<std::byte> bytes = writer.take();
  mpi.broadcast(bytes);
  WireReader reader(bytes);
  reader.get_all(values...);
}

}  // namespace paceline::app
