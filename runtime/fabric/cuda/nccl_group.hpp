// Collectives of devices over NCCL.
#pragma once

#include <string>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/memory.hpp"
#include "runtime/fabric/cuda/nccl_api.hpp"
#include "runtime/fabric/make_group.hpp"
#include "runtime/fabric/mpi_group.hpp"

namespace paceline::fabric {

/// NCCL moves the parts; the sums are ours, for its own come in orders of its choice. All on the
/// backend's stream; can be part of a captured pass. What lies in host memory goes over MPI.
///
/// While the host waits for the stream the group looks for what NCCL found out in the background,
/// and at the clock: a link that fails leaves kernels waiting for ever, and the host with them.
/// Then it aborts the communicator, so that they end, and has the job ended from there; nothing is
/// unwound, for that would wait for the other ranks too.
class NcclGroup final : public TensorParallelGroup, private kernels::cuda::StreamWatch {
 public:
  /// Duplicates `comm`; collective. `api` and `backend` must outlive the group. Throws Error
  /// (internal) with NCCL's own words.
  /// `room`: bytes of device memory for what other ranks send.
  NcclGroup(MPI_Comm comm, kernels::cuda::CudaBackend& backend, const NcclApi& api,
            GroupWatch watch, std::size_t room = kGroupExchangeBytes);
  ~NcclGroup() override;
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

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
  void waiting(double seconds) override;
  /// Ends the job where NCCL says that something failed.
  void check(ncclResult_t result, const char* what);
  void lose(const std::string& what);
  /// Sums of few values: every rank gets all parts of each. Of many: of a slice.
  void gather_and_add(std::span<float> values);
  void add_slices(std::span<float> values);
  [[nodiscard]] float* room() const { return reinterpret_cast<float*>(memory_.data()); }
  [[nodiscard]] std::size_t room_floats() const { return memory_.size() / sizeof(float); }

  kernels::cuda::CudaBackend& backend_;
  const NcclApi& api_;
  MpiGroup mpi_;
  GroupWatch watch_;
  ncclComm_t comm_ = nullptr;
  kernels::cuda::DeviceMemory memory_;  ///< what other ranks have sent
};

}  // namespace paceline::fabric
