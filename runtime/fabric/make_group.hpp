// The tensor-parallel group of a backend.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"

namespace paceline::fabric {

/// Device memory that a group may take beside its backend, for data of other ranks. It serves sums
/// and rows of any size, in pieces; 1,280 rows of 5,120 values from two ranks are one piece.
inline constexpr std::size_t kGroupExchangeBytes = std::size_t{64} << 20;

/// Failure handling of a group of devices whose ranks lose each other.
struct GroupWatch {
  /// Most seconds that the host waits for the device within a step; none: for ever.
  std::optional<double> limit;
  /// Ends the job, with the reason given. Does not return, and nothing is to be unwound before,
  /// which would wait for the lost ranks.
  std::function<void(const std::string& why)> lost;
};

struct MadeGroup {
  std::unique_ptr<TensorParallelGroup> group;
  std::string explanation;  ///< how devices reach each other
};

/// Makes the group of `comm`'s ranks, a power of two, all with a backend of one kind, which must
/// outlive the group. Collective over `comm`, which is duplicated. Hosts have make_host_group();
/// devices use NCCL where it is there and can be, else the host and MPI.
[[nodiscard]] MadeGroup make_group(MPI_Comm comm, kernels::Backend& backend,
                                   const GroupWatch& watch);

/// The group of hosts: over shared memory where all ranks are of one node, else over MPI.
/// Collective over `comm`, which is not kept.
[[nodiscard]] std::unique_ptr<TensorParallelGroup> make_host_group(MPI_Comm comm);

}  // namespace paceline::fabric
