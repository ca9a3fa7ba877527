// The tensor-parallel group of a backend.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"

namespace paceline::fabric {

struct MadeGroup {
  std::unique_ptr<TensorParallelGroup> group;
  std::string explanation;  ///< how its ranks reach each other, for devices
};

/// The ranks of `comm`, a power of two of them, all with a backend of one kind, which must outlive
/// the group. Collective over `comm`, which is duplicated. On the host over MPI; between devices
/// over NCCL where it is there and can be, else through the host and MPI.
[[nodiscard]] MadeGroup make_group(MPI_Comm comm, kernels::Backend& backend);

}  // namespace paceline::fabric
