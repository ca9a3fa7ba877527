// NCCL, loaded on demand: programs and hosts without GPUs do without it, and a newer library on the
// path than the one built with is taken.
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

/// The functions of NCCL. Null where libnccl.so.2 is not found or lacks some, with the reason in
/// `why`.
[[nodiscard]] const NcclApi* nccl_api(std::string& why);

}  // namespace paceline::fabric
