// Tensor-parallel collectives among ranks of one node, over shared memory.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/core/interfaces.hpp"
#include "runtime/fabric/shared_memory.hpp"

namespace paceline::fabric {

/// A group of ranks of one node, a power of two. Each rank copies its values to memory that all
/// others read, so that a sum of few values takes one meeting (barrier) of any number of ranks. A
/// waiting rank spins briefly and then sleeps until it is woken: where there are more ranks than
/// cores, the rank that it waits for gets the core at once. All data is in host memory.
class SharedGroup final : public TensorParallelGroup {
 public:
  /// Makes the group of `comm`'s ranks; null where they are not all on one node, or cannot map each
  /// other's memory. Collective; `comm` is not kept.
  [[nodiscard]] static std::unique_ptr<SharedGroup> make(MPI_Comm comm);

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
  struct Post;

  SharedGroup(int rank, int size, SharedMemory memory);
  [[nodiscard]] Post& post(int rank) const;
  [[nodiscard]] std::byte* piece(int rank, std::uint32_t meeting) const;
  /// Copies bytes to this rank's piece of the next meeting.
  void give(std::span<const std::byte> bytes);
  /// Comes to the next meeting, and waits until every rank has come with its piece.
  void meet();
  /// Gathers the bytes of all ranks into `all`, in rank order; rank r has `sizes[r]` bytes. A
  /// rank's own bytes may be in their place already.
  void gather(std::span<const std::byte> mine, std::span<const std::size_t> sizes, std::byte* all);
  /// A rank's piece of the last meeting. Valid until the meeting after the next.
  [[nodiscard]] const std::byte* met(int rank) const { return piece(rank, meetings_); }
  void sum_pieces(std::span<const float> given, std::size_t first, std::span<float> sum) const;

  int rank_;
  int size_;
  SharedMemory memory_;
  std::uint32_t meetings_ = 0;
  GroupTraffic traffic_;
};

}  // namespace paceline::fabric
