// Collectives of devices through host memory and MPI, for ranks that share a device or have no
// NCCL.
#pragma once

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/memory.hpp"
#include "runtime/fabric/mpi_group.hpp"

namespace paceline::fabric {

/// Sums by a copy to pinned memory, MpiGroup's sum, and a copy back. The calling thread waits for
/// the device and calls MPI itself: a CUDA-aware MPI may call CUDA, which a stream's host function
/// must not. So passes with these sums are not captured as CUDA graphs.
class StagedGroup final : public TensorParallelGroup {
 public:
  /// Duplicates `comm`. `backend` must outlive the group.
  StagedGroup(MPI_Comm comm, kernels::cuda::CudaBackend& backend);

  [[nodiscard]] int rank() const override { return mpi_.rank(); }
  [[nodiscard]] int size() const override { return mpi_.size(); }
  void all_reduce_tree(std::span<float> values) override;
  void gather_rows(std::span<float> rows, std::span<const int> first_row) override;
  [[nodiscard]] bool recordable() const override { return false; }
  void exchange_rows(std::span<const float> send, std::span<const int> columns,
                     std::span<const int> first_row, std::span<float> receive) override;
  void all_gather(std::span<const std::byte> mine, std::span<const int> sizes,
                  std::span<std::byte> all) override {
    mpi_.all_gather(mine, sizes, all);
  }
  /// Traffic over MPI, without copies from and to the device.
  [[nodiscard]] GroupTraffic traffic() const override { return mpi_.traffic(); }

 private:
  /// Returns `count` floats of pinned memory that no copy is using.
  std::span<float> room(std::size_t count);

  kernels::cuda::CudaBackend& backend_;
  MpiGroup mpi_;
  kernels::cuda::PinnedMemory memory_;
};

}  // namespace paceline::fabric
