#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "kernels/cuda/cuda_backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/fabric/make_group.hpp"

namespace paceline::fabric {

/// Makes the group over NCCL. Returns null on every rank, with the reason in `why`, in three cases:
/// NCCL is missing; ranks share a device and NCCL was not told to allow it (NCCL 2.30 and
/// NCCL_MULTI_RANK_GPU_ENABLE=1); or the ranks' devices have different sizes, so that they would
/// plan steps differently. Collective over `comm`.
[[nodiscard]] std::unique_ptr<TensorParallelGroup> try_nccl(MPI_Comm comm,
                                                            kernels::cuda::CudaBackend& backend,
                                                            const GroupWatch& watch,
                                                            std::string& why);

}  // namespace paceline::fabric
