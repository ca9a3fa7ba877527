// The NCCL group of builds with CUDA but without NCCL's header: none.
#include "runtime/fabric/cuda/try_nccl.hpp"

namespace paceline::fabric {

std::unique_ptr<TensorParallelGroup> try_nccl(MPI_Comm, kernels::cuda::CudaBackend&,
                                              const GroupWatch&, std::string& why) {
  why = "this build has no NCCL";
  return nullptr;
}

}  // namespace paceline::fabric
