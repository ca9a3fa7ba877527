#include "runtime/fabric/cuda/staged_group.hpp"

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/check.hpp"

namespace paceline::fabric {

StagedGroup::StagedGroup(MPI_Comm comm, kernels::cuda::CudaBackend& backend)
    : MpiGroup(comm), backend_(backend) {}

// Until backend_.wait() returns, copies on the stream may still use this memory.
std::span<float> StagedGroup::room(std::size_t count) {
  if (memory_.size() < count * sizeof(float)) {
    backend_.wait();
    memory_ = kernels::cuda::PinnedMemory(count * sizeof(float));
  }
  return {reinterpret_cast<float*>(memory_.data()), count};
}

void StagedGroup::all_reduce_tree(std::span<float> values) {
  const std::span<float> sums = room(values.size());
  const cudaStream_t stream = backend_.stream();
  PACELINE_CUDA_CHECK(cudaMemcpyAsync(sums.data(), values.data(), values.size_bytes(),
                                      cudaMemcpyDeviceToHost, stream));
  backend_.wait();
  MpiGroup::all_reduce_tree(sums);
  PACELINE_CUDA_CHECK(cudaMemcpyAsync(values.data(), sums.data(), values.size_bytes(),
                                      cudaMemcpyHostToDevice, stream));
}

void StagedGroup::gather_rows(std::span<float> rows, std::span<const int> first_row) {
  if (rows.empty()) return;
  const std::size_t width = rows.size() / first_row[size()];
  const std::size_t first = first_row[rank()] * width;
  const std::size_t mine = (first_row[rank() + 1] - first_row[rank()]) * width;
  const std::span<float> all = room(rows.size());
  const cudaStream_t stream = backend_.stream();
  PACELINE_CUDA_CHECK(cudaMemcpyAsync(all.data() + first, rows.data() + first, mine * sizeof(float),
                                      cudaMemcpyDeviceToHost, stream));
  backend_.wait();
  MpiGroup::gather_rows(all, first_row);
  PACELINE_CUDA_CHECK(
      cudaMemcpyAsync(rows.data(), all.data(), rows.size_bytes(), cudaMemcpyHostToDevice, stream));
}

void StagedGroup::exchange_rows(std::span<const float> send, std::span<const int> columns,
                                std::span<const int> first_row, std::span<float> receive) {
  std::vector<float> mine(send.size());
  backend_.read(reinterpret_cast<const std::byte*>(send.data()),
                std::as_writable_bytes(std::span(mine)));
  std::vector<float> rows(receive.size());
  MpiGroup::exchange_rows(mine, columns, first_row, rows);
  backend_.write(reinterpret_cast<std::byte*>(receive.data()), std::as_bytes(std::span(rows)));
}

}  // namespace paceline::fabric
