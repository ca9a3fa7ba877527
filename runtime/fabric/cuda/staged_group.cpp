#include "runtime/fabric/cuda/staged_group.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/cuda/check.hpp"

namespace paceline::fabric {

StagedGroup::StagedGroup(MPI_Comm comm, kernels::cuda::CudaBackend& backend)
    : backend_(backend), mpi_(comm) {}

StagedGroup::~StagedGroup() { static_cast<void>(cudaStreamSynchronize(backend_.stream())); }

void StagedGroup::add(void* sum) {
  const Sum& s = *static_cast<Sum*>(sum);
  s.group->mpi_.all_reduce_tree(s.values);
}

// Passes are not captured when they are first seen, so memory never grows within a capture.
StagedGroup::Sum& StagedGroup::sum_of(std::size_t count) {
  if (memory_.empty() || memory_.back().size() < count * sizeof(float))
    memory_.emplace_back(count * sizeof(float));
  auto* values = reinterpret_cast<float*>(memory_.back().data());
  const auto same = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& sum) {
    return sum.values.data() == values && sum.values.size() == count;
  });
  return same != sums_.end() ? *same : sums_.emplace_back(Sum{this, {values, count}});
}

void StagedGroup::all_reduce_tree(std::span<float> values) {
  Sum& sum = sum_of(values.size());
  const cudaStream_t stream = backend_.stream();
  PACELINE_CUDA_CHECK(cudaMemcpyAsync(sum.values.data(), values.data(), values.size_bytes(),
                                      cudaMemcpyDeviceToHost, stream));
  PACELINE_CUDA_CHECK(cudaLaunchHostFunc(stream, &StagedGroup::add, &sum));
  PACELINE_CUDA_CHECK(cudaMemcpyAsync(values.data(), sum.values.data(), values.size_bytes(),
                                      cudaMemcpyHostToDevice, stream));
}

void StagedGroup::exchange_rows(std::span<const float> send, std::span<const int> columns,
                                std::span<const int> first_row, std::span<float> receive) {
  std::vector<float> mine(send.size());
  backend_.read(reinterpret_cast<const std::byte*>(send.data()),
                std::as_writable_bytes(std::span(mine)));
  std::vector<float> rows(receive.size());
  mpi_.exchange_rows(mine, columns, first_row, rows);
  backend_.write(reinterpret_cast<std::byte*>(receive.data()), std::as_bytes(std::span(rows)));
}

}  // namespace paceline::fabric
