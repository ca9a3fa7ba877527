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

/// Bytes of device memory that a group may take, in addition to its backend's, for data of other
/// ranks. Sums and rows of any size go through it in pieces; 1,280 rows of 5,120 values from two
/// ranks are one piece.
inline constexpr std::size_t kGroupExchangeBytes = std::size_t{64} << 20;

/// Failure handling for a group of devices whose ranks lose contact.
struct GroupWatch {
  /// Most seconds that the host waits for the device within a step; absent: no limit.
  std::optional<double> limit;
  /// Ends the job with the reason `why`. Must not return, and must unwind nothing, as destructors
  /// would wait for the lost ranks.
  std::function<void(const std::string& why)> lost;
};

struct MadeGroup {
  std::unique_ptr<TensorParallelGroup> group;
  std::string explanation;  ///< how devices reach each other; empty: none
};

/// Makes the group of `comm`'s ranks, a power of two, all with a backend of one kind. `backend`
/// must outlive the group. Collective over `comm`, which is duplicated. CPU backends get
/// make_host_group(); devices use NCCL where it is installed and usable (try_nccl()), else host
/// memory and MPI.
[[nodiscard]] MadeGroup make_group(MPI_Comm comm, kernels::Backend& backend,
                                   const GroupWatch& watch);

/// Makes a group for host memory: over shared memory where all ranks are on one node, else over
/// MPI. Collective over `comm`, which is not kept.
[[nodiscard]] std::unique_ptr<TensorParallelGroup> make_host_group(MPI_Comm comm);

}  // namespace paceline::fabric
