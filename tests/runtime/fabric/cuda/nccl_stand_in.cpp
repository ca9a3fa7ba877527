// libnccl.so.2 for CUDA's emulation (tests/kernels/cuda_host): what NCCL moves between devices goes
// over MPI, as work of the emulated stream that is done when its messages are. It is stricter than
// NCCL: operations of ranks that do not fit together, or of which one is replayed from a graph and
// the other is not, end the job instead of hanging it.
//
// NCCL_STAND_IN_LOSE=RANK:OPERATION[:silently]: from that operation on nothing that this rank of
// MPI_COMM_WORLD sends or expects ever arrives; unless silently, NCCL notices.
#include <mpi.h>
#include <nccl.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/kernels/cuda_host/runtime.hpp"

struct ncclComm {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 0;
  std::int64_t operations = 0;  ///< that have begun
  bool lost = false;
  bool aborted = false;
  ncclResult_t error = ncclSuccess;
};

namespace {

constexpr int kMeetingTag = 31000;  ///< of MPI_COMM_WORLD, which nobody else sends over
constexpr int kDataTag = 1;

/// What an operation moves to or from one rank.
struct Part {
  bool sends = false;
  int peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// Goes before the bytes of each message.
struct Header {
  std::int64_t operation = 0;  ///< its number in the communicator
  std::int64_t recorded = 0;   ///< replayed from a graph
  std::int64_t bytes = 0;
};

struct Loss {
  int rank = -1;
  std::int64_t operation = 0;
  bool silent = false;
};
Loss wanted_loss() {
  Loss loss;
  const char* text = std::getenv("NCCL_STAND_IN_LOSE");
  if (text == nullptr) return loss;
  long long operation = 0;
  if (std::sscanf(text, "%d:%lld", &loss.rank, &operation) != 2) std::abort();
  loss.operation = operation;
  loss.silent = std::string_view(text).ends_with(":silently");
  return loss;
}

[[noreturn]] void end_job(const ncclComm& comm, const char* what, const Header& mine,
                          const Header& theirs) {
  std::fprintf(
      stderr,
      "NCCL stand-in: rank %d: %s (operation %lld, recorded %lld, %lld bytes; the other's: "
      "%lld, %lld, %lld)\n",
      comm.rank, what, static_cast<long long>(mine.operation),
      static_cast<long long>(mine.recorded), static_cast<long long>(mine.bytes),
      static_cast<long long>(theirs.operation), static_cast<long long>(theirs.recorded),
      static_cast<long long>(theirs.bytes));
  MPI_Abort(MPI_COMM_WORLD, 99);
  std::abort();
}

/// One operation of a stream. Ready to be carried out again when it is done.
class Exchange {
 public:
  Exchange(ncclComm& comm, std::vector<Part> parts, bool recorded)
      : comm_(comm), parts_(std::move(parts)), recorded_(recorded) {}

  bool advance() {
    if (comm_.aborted) return true;  // what still runs comes to its end, of no use to anybody
    if (!begun_) begin();
    if (comm_.lost) return false;
    int done = 0;
    const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                                 MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) end_job(comm_, "more was sent than is expected", header_, {});
    if (done == 0) return false;
    finish();
    return true;
  }

 private:
  void begin() {
    begun_ = true;
    header_.operation = ++comm_.operations;
    header_.recorded = recorded_ ? 1 : 0;
    static const Loss loss = wanted_loss();
    int world = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    if (loss.rank == world && comm_.operations >= loss.operation) {
      comm_.lost = true;
      if (!loss.silent) comm_.error = ncclRemoteError;
      return;
    }
    messages_.resize(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      messages_[i].resize(sizeof(Header) + part.bytes);
      if (part.sends) pack(part, messages_[i]);
      if (part.peer == comm_.rank) continue;
      MPI_Request& request = requests_.emplace_back();
      const int size = static_cast<int>(messages_[i].size());
      if (part.sends) {
        MPI_Isend(messages_[i].data(), size, MPI_BYTE, part.peer, kDataTag, comm_.comm, &request);
      } else {
        MPI_Irecv(messages_[i].data(), size, MPI_BYTE, part.peer, kDataTag, comm_.comm, &request);
      }
    }
  }

  void pack(const Part& part, std::vector<std::byte>& message) {
    header_.bytes = static_cast<std::int64_t>(part.bytes);
    std::memcpy(message.data(), &header_, sizeof header_);
    if (part.bytes > 0) std::memcpy(message.data() + sizeof header_, part.data, part.bytes);
  }

  void finish() {
    std::vector<std::size_t> own;  // what goes from this rank to itself, in order
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].sends && parts_[i].peer == comm_.rank) own.push_back(i);
    }
    auto next = own.begin();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      if (part.sends) continue;
      const bool from_me = part.peer == comm_.rank;
      if (from_me && next == own.end()) end_job(comm_, "nothing sent to itself", header_, {});
      const std::vector<std::byte>& message = from_me ? messages_[*next++] : messages_[i];
      Header theirs;
      std::memcpy(&theirs, message.data(), sizeof theirs);
      header_.bytes = static_cast<std::int64_t>(part.bytes);
      if (theirs.operation != header_.operation || theirs.bytes != header_.bytes)
        end_job(comm_, "operations do not fit together", header_, theirs);
      if (theirs.recorded != header_.recorded)
        end_job(comm_, "one rank replays what another launches", header_, theirs);
      if (part.bytes > 0) std::memcpy(part.data, message.data() + sizeof theirs, part.bytes);
    }
    requests_.clear();
    messages_.clear();
    begun_ = false;
  }

  ncclComm& comm_;
  std::vector<Part> parts_;
  bool recorded_;
  bool begun_ = false;
  Header header_;
  std::vector<std::vector<std::byte>> messages_;  ///< [parts]
  std::vector<MPI_Request> requests_;
};

/// Calls between ncclGroupStart() and ncclGroupEnd().
struct Group {
  int depth = 0;
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Part> parts;
};
thread_local Group t_group;

ncclResult_t enqueue(ncclComm& comm, std::vector<Part> parts, cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) return ncclUnhandledCudaError;
  const auto exchange =
      std::make_shared<Exchange>(comm, std::move(parts), status == cudaStreamCaptureStatusActive);
  const auto advance = [exchange] { return exchange->advance(); };
  return paceline::cuda_host::enqueue_polled(advance, stream) == cudaSuccess
             ? ncclSuccess
             : ncclUnhandledCudaError;
}

ncclResult_t add(const Part& part, ncclComm& comm, cudaStream_t stream) {
  if (t_group.depth == 0) return enqueue(comm, {part}, stream);
  if (t_group.comm != nullptr && (t_group.comm != &comm || t_group.stream != stream))
    return ncclInvalidUsage;
  t_group.comm = &comm;
  t_group.stream = stream;
  t_group.parts.push_back(part);
  return ncclSuccess;
}

/// Communicators stay for good: work of a stream may still speak of one that was aborted.
std::vector<std::unique_ptr<ncclComm>>& communicators() {
  static std::vector<std::unique_ptr<ncclComm>> all;
  return all;
}

std::byte* bytes_of(const void* data) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(data));
}

}  // namespace

// The first to let ranks share a device, which those of an emulation do.
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION(2, 30, 0);
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  int world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world);
  const int words[2] = {world, ++made % 1000};
  *id = {};
  std::memcpy(id->internal, words, sizeof words);
  return ncclSuccess;
}

// The ranks tell the one that made the id who they are, and it tells them of each other.
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  int words[2];
  std::memcpy(words, id.internal, sizeof words);
  const int root = words[0];
  const int tag = kMeetingTag + words[1];
  int world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world);
  std::vector<int> members(ranks);
  const int me[2] = {rank, world};
  if (world == root) {
    members.at(rank) = world;
    for (int i = 1; i < ranks; ++i) {
      int other[2];
      MPI_Recv(other, 2, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      members.at(other[0]) = other[1];
    }
    for (const int member : members) {
      if (member != world) MPI_Send(members.data(), ranks, MPI_INT, member, tag, MPI_COMM_WORLD);
    }
  } else {
    MPI_Send(me, 2, MPI_INT, root, tag, MPI_COMM_WORLD);
    MPI_Recv(members.data(), ranks, MPI_INT, root, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  auto made = std::make_unique<ncclComm>();
  MPI_Group everyone = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &everyone);
  MPI_Group_incl(everyone, ranks, members.data(), &group);
  MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &made->comm);
  MPI_Comm_set_errhandler(made->comm, MPI_ERRORS_RETURN);  // what does not fit is told in its words
  MPI_Group_free(&group);
  MPI_Group_free(&everyone);
  made->rank = rank;
  made->size = ranks;
  *comm = communicators().emplace_back(std::move(made)).get();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;  // the others may never hear of it
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  MPI_Comm_free(&comm->comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->error;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "internal error";
  }
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return "of the stand-in"; }

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat || t_group.depth != 0) return ncclInvalidUsage;
  const std::size_t bytes = count * sizeof(float);
  std::vector<Part> parts;
  for (int r = 0; r < comm->size; ++r) {
    parts.push_back({true, r, bytes_of(send), bytes});
    parts.push_back({false, r, bytes_of(receive) + r * bytes, bytes});
  }
  return enqueue(*comm, std::move(parts), stream);
}

ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat) return ncclInvalidUsage;
  return add({true, peer, bytes_of(send), count * sizeof(float)}, *comm, stream);
}

ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat) return ncclInvalidUsage;
  return add({false, peer, bytes_of(receive), count * sizeof(float)}, *comm, stream);
}

ncclResult_t ncclGroupStart() {
  ++t_group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (t_group.depth == 0) return ncclInvalidUsage;
  if (--t_group.depth > 0 || t_group.comm == nullptr) return ncclSuccess;
  Group group = std::exchange(t_group, {});
  return enqueue(*group.comm, std::move(group.parts), group.stream);
}
