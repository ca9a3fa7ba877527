// Group of a backend, in builds with CUDA.
#include "runtime/fabric/cuda/staged_group.hpp"
#include "runtime/fabric/cuda/try_nccl.hpp"
#include "runtime/fabric/make_group.hpp"

namespace paceline::fabric {

MadeGroup make_group(MPI_Comm comm, kernels::Backend& backend, const GroupWatch& watch) {
  auto* device = dynamic_cast<kernels::cuda::CudaBackend*>(&backend);
  if (device == nullptr) return {make_host_group(comm), ""};
  std::string why;
  if (auto group = try_nccl(comm, *device, watch, why)) return {std::move(group), "sums over NCCL"};
  return {std::make_unique<StagedGroup>(comm, *device), "sums through host memory: " + why};
}

}  // namespace paceline::fabric
