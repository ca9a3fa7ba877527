#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "kernels/cuda/cuda_backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/fabric/make_group.hpp"

namespace paceline::fabric {

/// The group over NCCL, or null on every rank, with the reason in `why`: NCCL is missing; or ranks
/// share a device and NCCL was not told to let them (NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1);
/// or their devices would plan steps differently. Collective over `comm`.
[[nodiscard]] std::unique_ptr<TensorParallelGroup> try_nccl(MPI_Comm comm,
                                                            kernels::cuda::CudaBackend& backend,
                                                            const GroupWatch& watch,
                                                            std::string& why);

}  // namespace paceline::fabric
