// Collectives of devices through host memory and MPI, for ranks that share a device or have no
// NCCL.
#pragma once

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/memory.hpp"
#include "runtime/fabric/mpi_group.hpp"

namespace paceline::fabric {

/// Sums by a copy to pinned memory, MpiGroup's sum, and a copy back. The calling thread waits for
/// the device and calls MPI itself: a CUDA-aware MPI may call CUDA, which a stream's host function
/// must not. So passes with these sums are not captured as CUDA graphs. The traffic is MPI's,
/// without copies from and to the device.
class StagedGroup final : public MpiGroup {
 public:
  /// Duplicates `comm`. `backend` must outlive the group.
  StagedGroup(MPI_Comm comm, kernels::cuda::CudaBackend& backend);

  void all_reduce_tree(std::span<float> values) override;
  void gather_rows(std::span<float> rows, std::span<const int> first_row) override;
  [[nodiscard]] bool recordable() const override { return false; }
  void exchange_rows(std::span<const float> send, std::span<const int> columns,
                     std::span<const int> first_row, std::span<float> receive) override;

 private:
  /// Returns `count` floats of pinned memory that no copy is using.
  std::span<float> room(std::size_t count);

  kernels::cuda::CudaBackend& backend_;
  kernels::cuda::PinnedMemory memory_;
};

}  // namespace paceline::fabric
