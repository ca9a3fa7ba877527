// MPI communicators that free themselves. A broadcast gives all ranks rank 0's values, so that they
// decide alike.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/core/wire.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// A communicator of this program, freed at the end of its scope.
class Communicator {
 public:
  /// A communicator of all ranks.
  static Communicator duplicate() {
    Communicator made;
    MPI_Comm_dup(MPI_COMM_WORLD, &made.comm_);
    return made;
  }
  /// A communicator of the ranks that give the same color; null if color < 0.
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

/// Every rank gets rank 0's values, of any type that WireWriter takes. Collective.
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
