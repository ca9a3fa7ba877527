// NCCL, loaded on demand: hosts without GPUs need no library, and it may be newer than the header
// of the build.
#pragma once

#include <nccl.h>

#include <string>

namespace paceline::fabric {

struct NcclApi {
  decltype(&::ncclGetVersion) get_version;
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRank) comm_init_rank;
  decltype(&::ncclCommAbort) comm_abort;
  decltype(&::ncclCommDestroy) comm_destroy;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error;
  decltype(&::ncclGetErrorString) get_error_string;
  decltype(&::ncclGetLastError) get_last_error;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) recv;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;
};

/// NCCL's functions. Null where libnccl.so.2 is not found or lacks one of them, with the reason in
/// `why`.
[[nodiscard]] const NcclApi* nccl_api(std::string& why);

}  // namespace paceline::fabric
