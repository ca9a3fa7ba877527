#include "runtime/fabric/cuda/nccl_api.hpp"

#include <dlfcn.h>

#include <optional>

namespace paceline::fabric {
namespace {

struct Loaded {
  std::optional<NcclApi> api;
  std::string why;
};

Loaded load() {
  Loaded loaded;
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);  // never unloaded
  if (library == nullptr) {
    loaded.why = dlerror();
    return loaded;
  }
  NcclApi api{};
  const auto find = [&](auto& function, const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr && loaded.why.empty()) loaded.why = std::string(name) + " is missing";
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(api.get_version, "ncclGetVersion");
  find(api.get_unique_id, "ncclGetUniqueId");
  find(api.comm_init_rank, "ncclCommInitRank");
  find(api.comm_abort, "ncclCommAbort");
  find(api.comm_destroy, "ncclCommDestroy");
  find(api.comm_get_async_error, "ncclCommGetAsyncError");
  find(api.get_error_string, "ncclGetErrorString");
  find(api.get_last_error, "ncclGetLastError");
  find(api.all_gather, "ncclAllGather");
  find(api.send, "ncclSend");
  find(api.recv, "ncclRecv");
  find(api.group_start, "ncclGroupStart");
  find(api.group_end, "ncclGroupEnd");
  if (loaded.why.empty()) loaded.api = api;
  return loaded;
}

}  // namespace

const NcclApi* nccl_api(std::string& why) {
  static const Loaded loaded = load();
  why = loaded.why;
  return loaded.api ? &*loaded.api : nullptr;
}

}  // namespace paceline::fabric
