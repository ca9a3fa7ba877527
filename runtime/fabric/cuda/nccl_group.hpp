// Collectives of devices over NCCL.
#pragma once

#include <string>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/memory.hpp"
#include "runtime/fabric/cuda/nccl_api.hpp"
#include "runtime/fabric/make_group.hpp"
#include "runtime/fabric/mpi_group.hpp"

namespace paceline::fabric {

/// A group whose data NCCL moves. Our own kernels compute the sums, as NCCL chooses the order of
/// its sums. All work runs on the backend's stream and can be captured as part of a CUDA graph.
/// Data in host memory goes over MPI, whose traffic is the group's.
///
/// A failed link would leave kernels waiting forever, and the host with them. So a watch polls
/// NCCL's asynchronous errors and the clock while the host waits for the stream. On a failure it
/// aborts the communicator, so that kernels end, and ends the job. Nothing is unwound, as
/// destructors would wait for the other ranks too.
class NcclGroup final : public MpiGroup, private kernels::cuda::StreamWatch {
 public:
  /// Duplicates `comm`; collective. `api` and `backend` must outlive the group. `room`: bytes of
  /// device memory for other ranks' data. Throws Error (internal) with NCCL's own words.
  NcclGroup(MPI_Comm comm, kernels::cuda::CudaBackend& backend, const NcclApi& api,
            GroupWatch watch, std::size_t room = kGroupExchangeBytes);
  ~NcclGroup() override;
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  void all_reduce_tree(std::span<float> values) override;
  void gather_rows(std::span<float> rows, std::span<const int> first_row) override;
  void exchange_rows(std::span<const float> send, std::span<const int> columns,
                     std::span<const int> first_row, std::span<float> receive) override;
  void all_gather(std::span<const std::byte> mine, std::span<const int> sizes,
                  std::span<std::byte> all) override;

 private:
  void waiting(double seconds) override;
  /// Ends the job if an NCCL call failed.
  void check(ncclResult_t result, const char* what);
  void lose(const std::string& what);
  /// Two ways to sum. For few values every rank gets all ranks' values; for many, every rank gets
  /// one slice of them, and then the sums of the other slices.
  void gather_and_add(std::span<float> values);
  void add_slices(std::span<float> values);
  [[nodiscard]] float* room() const { return reinterpret_cast<float*>(memory_.data()); }
  [[nodiscard]] std::size_t room_floats() const { return memory_.size() / sizeof(float); }

  kernels::cuda::CudaBackend& backend_;
  const NcclApi& api_;
  GroupWatch watch_;
  ncclComm_t comm_ = nullptr;
  kernels::cuda::DeviceMemory memory_;  ///< values received from other ranks
};

}  // namespace paceline::fabric
