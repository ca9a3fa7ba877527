#include "runtime/fabric/cuda/nccl_group.hpp"

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/tree_add.hpp"

namespace paceline::fabric {
namespace {

/// From here on every rank adds a slice only: (2 - 2 / ranks) times the values are moved instead of
/// ranks - 1 times, but in two rounds.
constexpr std::size_t kSliceBytes = std::size_t{512} << 10;

}  // namespace

NcclGroup::NcclGroup(MPI_Comm comm, kernels::cuda::CudaBackend& backend, const NcclApi& api)
    : backend_(backend), api_(api), mpi_(comm) {
  ncclUniqueId id{};
  if (mpi_.rank() == 0) check(api_.get_unique_id(&id), "ncclGetUniqueId");
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm);
  check(api_.comm_init_rank(&comm_, mpi_.size(), id, mpi_.rank()), "ncclCommInitRank");
}

NcclGroup::~NcclGroup() {
  // Graphs that hold on to the communicator are gone with the decoders; work may still be under
  // way.
  const bool whole = cudaStreamSynchronize(backend_.stream()) == cudaSuccess;
  static_cast<void>(whole ? api_.comm_destroy(comm_) : api_.comm_abort(comm_));
}

void NcclGroup::check(ncclResult_t result, const char* what) const {
  if (result == ncclSuccess) return;
  throw Error(ExitCode::internal, std::string(what) + ": " + api_.get_error_string(result) + ": " +
                                      api_.get_last_error(comm_));
}

void NcclGroup::look_for_errors() const {
  ncclResult_t found = ncclSuccess;
  check(api_.comm_get_async_error(comm_, &found), "ncclCommGetAsyncError");
  check(found, "NCCL, in the background");
}

// Passes are not captured when they are first seen, so memory never grows within a capture.
float* NcclGroup::room(std::size_t count) {
  if (memory_.empty() || memory_.back().size() < count * sizeof(float))
    memory_.emplace_back(count * sizeof(float));
  return reinterpret_cast<float*>(memory_.back().data());
}

// Whichever way the parts come, they are added in the same tree.
void NcclGroup::all_reduce_tree(std::span<float> values) {
  const cudaStream_t stream = backend_.stream();
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t count = values.size();
  if (ranks == 2 || count % ranks != 0 || values.size_bytes() < kSliceBytes) {
    float* parts = room(ranks * count);
    check(api_.all_gather(values.data(), parts, count, ncclFloat, comm_, stream), "ncclAllGather");
    kernels::cuda::tree_add(parts, size(), count, values.data(), stream);
    return;
  }
  const std::size_t slice = count / ranks;
  float* parts = room(count);  // [ranks][slice] of my slice
  check(api_.group_start(), "ncclGroupStart");
  for (int r = 0; r < size(); ++r) {
    check(api_.send(values.data() + r * slice, slice, ncclFloat, r, comm_, stream), "ncclSend");
    check(api_.recv(parts + r * slice, slice, ncclFloat, r, comm_, stream), "ncclRecv");
  }
  check(api_.group_end(), "ncclGroupEnd");
  float* mine = values.data() + rank() * slice;
  kernels::cuda::tree_add(parts, size(), slice, mine, stream);
  check(api_.all_gather(mine, values.data(), slice, ncclFloat, comm_, stream), "ncclAllGather");
}

void NcclGroup::exchange_rows(std::span<const float> send, std::span<const int> columns,
                              std::span<const int> first_row, std::span<float> receive) {
  look_for_errors();
  const cudaStream_t stream = backend_.stream();
  const std::size_t width = columns[rank()];
  const std::size_t mine = first_row[rank() + 1] - first_row[rank()];
  float* blocks = room(receive.size());  // rank r's block: [mine, columns[r]]
  check(api_.group_start(), "ncclGroupStart");
  std::size_t at = 0;
  for (int r = 0; r < size(); ++r) {
    const std::size_t rows = first_row[r + 1] - first_row[r];
    check(api_.send(send.data() + first_row[r] * width, rows * width, ncclFloat, r, comm_, stream),
          "ncclSend");
    check(api_.recv(blocks + at, mine * columns[r], ncclFloat, r, comm_, stream), "ncclRecv");
    at += mine * columns[r];
  }
  check(api_.group_end(), "ncclGroupEnd");
  if (mine == 0) return;
  const std::size_t pitch = receive.size() / mine * sizeof(float);
  at = 0;
  std::size_t column = 0;
  for (int r = 0; r < size(); ++r) {
    const std::size_t bytes = columns[r] * sizeof(float);
    PACELINE_CUDA_CHECK(cudaMemcpy2DAsync(receive.data() + column, pitch, blocks + at, bytes, bytes,
                                          mine, cudaMemcpyDeviceToDevice, stream));
    at += mine * columns[r];
    column += columns[r];
  }
}

void NcclGroup::all_gather(std::span<const std::byte> mine, std::span<const int> sizes,
                           std::span<std::byte> all) {
  look_for_errors();
  mpi_.all_gather(mine, sizes, all);
}

}  // namespace paceline::fabric
