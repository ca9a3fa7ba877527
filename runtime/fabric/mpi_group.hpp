// Tensor-parallel collectives over MPI.
#pragma once

#include <mpi.h>

#include <vector>

#include "runtime/core/interfaces.hpp"

namespace paceline::fabric {

/// A group of one rank: every operation is the identity.
class SingleRankGroup final : public TensorParallelGroup {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void all_reduce_tree(std::span<float>) override {}
  void gather_rows(std::span<float>, std::span<const int>) override {}
  void exchange_rows(std::span<const float> send, std::span<const int>, std::span<const int>,
                     std::span<float> receive) override;
  void all_gather(std::span<const std::byte> mine, std::span<const int>,
                  std::span<std::byte> all) override;
};

/// A group of a communicator's ranks, a power of two. Waiting ranks yield and sleep instead of
/// spinning, so that a group whose leader has nothing to do uses no CPU time. All data is in host
/// memory; groups of devices derive from this one.
class MpiGroup : public TensorParallelGroup {
 public:
  /// Duplicates `comm`.
  explicit MpiGroup(MPI_Comm comm);
  ~MpiGroup() override;
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void all_reduce_tree(std::span<float> values) override;
  void gather_rows(std::span<float> rows, std::span<const int> first_row) override;
  void exchange_rows(std::span<const float> send, std::span<const int> columns,
                     std::span<const int> first_row, std::span<float> receive) override;
  void all_gather(std::span<const std::byte> mine, std::span<const int> sizes,
                  std::span<std::byte> all) override;
  [[nodiscard]] GroupTraffic traffic() const override { return traffic_; }

 private:
  void wait(std::span<MPI_Request> requests);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  GroupTraffic traffic_;
  std::vector<float> partner_;  ///< values received from the partner of an all-reduce step
  std::vector<float> columns_;  ///< received column blocks, to be interleaved
};

}  // namespace paceline::fabric
