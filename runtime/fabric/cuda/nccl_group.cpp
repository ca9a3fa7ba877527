#include "runtime/fabric/cuda/nccl_group.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <climits>
#include <exception>
#include <string>
#include <utility>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/tree_add.hpp"

namespace paceline::fabric {
namespace {

/// Least number of floats to sum in slices, one for each rank. Slices move (2 - 2 / ranks) times
/// the values instead of (ranks - 1) times, but in two rounds.
constexpr std::size_t kSliceFloats = (std::size_t{512} << 10) / sizeof(float);

std::string words(const NcclApi& api, ncclComm_t comm, ncclResult_t result, const char* what) {
  return std::string(what) + ": " + api.get_error_string(result) + ": " + api.get_last_error(comm);
}

}  // namespace

NcclGroup::NcclGroup(MPI_Comm comm, kernels::cuda::CudaBackend& backend, const NcclApi& api,
                     GroupWatch watch, std::size_t room)
    : MpiGroup(comm), backend_(backend), api_(api), watch_(std::move(watch)), memory_(room) {
  const auto require = [&](ncclResult_t result, const char* what) {
    if (result != ncclSuccess) throw Error(ExitCode::internal, words(api_, comm_, result, what));
  };
  ncclUniqueId id{};
  if (rank() == 0) require(api_.get_unique_id(&id), "ncclGetUniqueId");
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm);
  require(api_.comm_init_rank(&comm_, size(), id, rank()), "ncclCommInitRank");
  backend_.add_watch(*this);
}

// CUDA graphs that use the communicator were destroyed with the decoders; device work may still
// run.
NcclGroup::~NcclGroup() {
  bool whole = true;
  try {
    backend_.wait();
  } catch (const Error&) {  // the device failed; this was reported before
    whole = false;
  }
  backend_.remove_watch(*this);
  static_cast<void>(whole ? api_.comm_destroy(comm_) : api_.comm_abort(comm_));
}

void NcclGroup::lose(const std::string& what) {
  static_cast<void>(api_.comm_abort(comm_));
  watch_.lost(what);
  std::terminate();  // lost() does not return
}

void NcclGroup::check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) lose(words(api_, comm_, result, what));
}

void NcclGroup::waiting(double seconds) {
  ncclResult_t found = ncclSuccess;
  check(api_.comm_get_async_error(comm_, &found), "ncclCommGetAsyncError");
  check(found, "NCCL, in the background");
  if (watch_.limit && seconds > *watch_.limit) {
    lose("the device has waited for the other ranks of its group for " +
         std::to_string(static_cast<int>(seconds)) + " s");
  }
}

// Sums of different values are independent, so values can be summed in pieces that fit the room.
void NcclGroup::all_reduce_tree(std::span<float> values) {
  const auto ranks = static_cast<std::size_t>(size());
  while (!values.empty()) {
    const std::size_t sliced = std::min(values.size(), room_floats()) / ranks * ranks;
    const bool in_slices = ranks > 2 && sliced >= kSliceFloats;
    const std::size_t count = in_slices ? sliced : std::min(values.size(), room_floats() / ranks);
    if (in_slices) {
      add_slices(values.first(count));
    } else {
      gather_and_add(values.first(count));
    }
    values = values.subspan(count);
  }
}

// The ranks' values are added in the same tree in both ways.
void NcclGroup::gather_and_add(std::span<float> values) {
  const cudaStream_t stream = backend_.stream();
  check(api_.all_gather(values.data(), room(), values.size(), ncclFloat, comm_, stream),
        "ncclAllGather");
  kernels::cuda::tree_add(room(), size(), values.size(), values.data(), stream);
}

void NcclGroup::add_slices(std::span<float> values) {
  const cudaStream_t stream = backend_.stream();
  const std::size_t slice = values.size() / size();
  // Receives all ranks' values of this rank's slice: [ranks, slice].
  check(api_.group_start(), "ncclGroupStart");
  for (int r = 0; r < size(); ++r) {
    check(api_.send(values.data() + r * slice, slice, ncclFloat, r, comm_, stream), "ncclSend");
    check(api_.recv(room() + r * slice, slice, ncclFloat, r, comm_, stream), "ncclRecv");
  }
  check(api_.group_end(), "ncclGroupEnd");
  float* mine = values.data() + rank() * slice;
  kernels::cuda::tree_add(room(), size(), slice, mine, stream);
  check(api_.all_gather(mine, values.data(), slice, ncclFloat, comm_, stream), "ncclAllGather");
}

// Each rank sends its rows to all others, and receives theirs in their places.
void NcclGroup::gather_rows(std::span<float> rows, std::span<const int> first_row) {
  if (rows.empty()) return;
  const cudaStream_t stream = backend_.stream();
  const std::size_t width = rows.size() / first_row[size()];
  const auto rows_of = [&](int r) {
    return rows.subspan(first_row[r] * width, (first_row[r + 1] - first_row[r]) * width);
  };
  const std::span<const float> mine = rows_of(rank());
  check(api_.group_start(), "ncclGroupStart");
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const std::span<float> theirs = rows_of(r);
    check(api_.send(mine.data(), mine.size(), ncclFloat, r, comm_, stream), "ncclSend");
    check(api_.recv(theirs.data(), theirs.size(), ncclFloat, r, comm_, stream), "ncclRecv");
  }
  check(api_.group_end(), "ncclGroupEnd");
}

// Rows move in rounds; in each, a rank gets as many rows as there is room for.
void NcclGroup::exchange_rows(std::span<const float> send, std::span<const int> columns,
                              std::span<const int> first_row, std::span<float> receive) {
  const cudaStream_t stream = backend_.stream();
  const std::size_t width = columns[rank()];
  std::size_t stride = 0;
  for (const int c : columns) stride += c;
  const int at_once = static_cast<int>(std::min<std::size_t>(room_floats() / stride, INT_MAX));
  if (at_once == 0) throw Error(ExitCode::internal, "a row of logits has no room to be exchanged");
  int rounds = 0;
  for (int r = 0; r < size(); ++r)
    rounds = std::max(rounds, (first_row[r + 1] - first_row[r] + at_once - 1) / at_once);
  for (int round = 0; round < rounds; ++round) {
    // Rows of rank r in this round: [begin(r), end(r)).
    const auto begin = [&](int r) {
      return std::min(first_row[r] + round * at_once, first_row[r + 1]);
    };
    const auto end = [&](int r) { return std::min(begin(r) + at_once, first_row[r + 1]); };
    const std::size_t mine = end(rank()) - begin(rank());
    check(api_.group_start(), "ncclGroupStart");
    std::size_t at = 0;  // start of rank r's block: [mine, columns[r]]
    for (int r = 0; r < size(); ++r) {
      check(api_.send(send.data() + begin(r) * width, (end(r) - begin(r)) * width, ncclFloat, r,
                      comm_, stream),
            "ncclSend");
      check(api_.recv(room() + at, mine * columns[r], ncclFloat, r, comm_, stream), "ncclRecv");
      at += mine * columns[r];
    }
    check(api_.group_end(), "ncclGroupEnd");
    float* to = receive.data() + (begin(rank()) - first_row[rank()]) * stride;
    at = 0;
    for (int r = 0; r < size(); ++r) {
      const std::size_t bytes = columns[r] * sizeof(float);
      if (mine > 0) {
        PACELINE_CUDA_CHECK(cudaMemcpy2DAsync(to, stride * sizeof(float), room() + at, bytes, bytes,
                                              mine, cudaMemcpyDeviceToDevice, stream));
      }
      at += mine * columns[r];
      to += columns[r];
    }
  }
}

// Waits for the device first, with the watch active: after the loss of a rank, some ranks would
// never enter MPI's call, and others never leave it.
void NcclGroup::all_gather(std::span<const std::byte> mine, std::span<const int> sizes,
                           std::span<std::byte> all) {
  backend_.wait();
  MpiGroup::all_gather(mine, sizes, all);
}

}  // namespace paceline::fabric
