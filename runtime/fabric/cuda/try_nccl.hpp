#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "kernels/cuda/cuda_backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/fabric/make_group.hpp"

namespace paceline::fabric {

/// The group over NCCL, or null on every rank, with the reason in `why`: where it is missing, or
/// where ranks share a device and NCCL was not told to let them (NCCL 2.30 and
/// NCCL_MULTI_RANK_GPU_ENABLE=1), or have devices of which each would plan its steps differently.
/// Collective over `comm`.
[[nodiscard]] std::unique_ptr<TensorParallelGroup> try_nccl(MPI_Comm comm,
                                                            kernels::cuda::CudaBackend& backend,
                                                            const GroupWatch& watch,
                                                            std::string& why);

}  // namespace paceline::fabric
