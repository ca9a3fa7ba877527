// Collectives of devices through host memory and MPI: for ranks that share a device, and where
// there is no NCCL.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/memory.hpp"
#include "runtime/fabric/mpi_group.hpp"

namespace paceline::fabric {

/// Every sum is a copy to pinned memory, MpiGroup's on a thread of the driver, and a copy back, all
/// on the backend's stream, so that it can be part of a captured pass.
class StagedGroup final : public TensorParallelGroup {
 public:
  /// Duplicates `comm`. `backend` must outlive the group.
  StagedGroup(MPI_Comm comm, kernels::cuda::CudaBackend& backend);
  ~StagedGroup() override;

  [[nodiscard]] int rank() const override { return mpi_.rank(); }
  [[nodiscard]] int size() const override { return mpi_.size(); }
  void all_reduce_tree(std::span<float> values) override;
  void exchange_rows(std::span<const float> send, std::span<const int> columns,
                     std::span<const int> first_row, std::span<float> receive) override;
  void all_gather(std::span<const std::byte> mine, std::span<const int> sizes,
                  std::span<std::byte> all) override {
    mpi_.all_gather(mine, sizes, all);
  }
  /// The copies from and to the device are not in it. To be asked when the pass has ended.
  [[nodiscard]] GroupTraffic traffic() const override { return mpi_.traffic(); }

 private:
  /// A sum as captured passes refer to it: at one address for as long as the group lives.
  struct Sum {
    StagedGroup* group;
    std::span<float> values;  ///< pinned
  };
  static void add(void* sum);
  Sum& sum_of(std::size_t count);

  kernels::cuda::CudaBackend& backend_;
  MpiGroup mpi_;
  std::vector<kernels::cuda::PinnedMemory>
      memory_;  ///< the last is the largest, the others retired
  std::deque<Sum> sums_;
};

}  // namespace paceline::fabric
