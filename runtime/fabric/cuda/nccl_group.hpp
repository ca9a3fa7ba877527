// Collectives of devices over NCCL.
#pragma once

#include <vector>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/memory.hpp"
#include "runtime/fabric/cuda/nccl_api.hpp"
#include "runtime/fabric/mpi_group.hpp"

namespace paceline::fabric {

/// NCCL moves the parts; the sums are ours, for its own come in orders of its choice. All on the
/// backend's stream; can be part of a captured pass. What lies in host memory goes over MPI, where
/// errors that NCCL found meanwhile are looked for too.
class NcclGroup final : public TensorParallelGroup {
 public:
  /// Duplicates `comm`; collective. `api` and `backend` must outlive the group. Throws Error
  /// (internal) with NCCL's own words.
  NcclGroup(MPI_Comm comm, kernels::cuda::CudaBackend& backend, const NcclApi& api);
  ~NcclGroup() override;

  [[nodiscard]] int rank() const override { return mpi_.rank(); }
  [[nodiscard]] int size() const override { return mpi_.size(); }
  void all_reduce_tree(std::span<float> values) override;
  void exchange_rows(std::span<const float> send, std::span<const int> columns,
                     std::span<const int> first_row, std::span<float> receive) override;
  void all_gather(std::span<const std::byte> mine, std::span<const int> sizes,
                  std::span<std::byte> all) override;
  /// Of what goes over MPI.
  [[nodiscard]] GroupTraffic traffic() const override { return mpi_.traffic(); }

 private:
  void check(ncclResult_t result, const char* what) const;
  void look_for_errors() const;
  float* room(std::size_t count);

  kernels::cuda::CudaBackend& backend_;
  const NcclApi& api_;
  MpiGroup mpi_;
  ncclComm_t comm_ = nullptr;
  std::vector<kernels::cuda::DeviceMemory>
      memory_;  ///< the last is the largest, the others retired
};

}  // namespace paceline::fabric
