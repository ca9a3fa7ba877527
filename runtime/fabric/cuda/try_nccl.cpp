#include "runtime/fabric/cuda/try_nccl.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "kernels/gpus.hpp"
#include "runtime/fabric/cuda/nccl_group.hpp"

namespace paceline::fabric {
namespace {

/// The first version of NCCL that lets ranks share a device.
constexpr int kSharing = NCCL_VERSION(2, 30, 0);

struct Facts {
  char host[64] = {};
  std::uint64_t place = 0;  ///< place of the device on the host
  std::uint32_t multiprocessors = 0;
  std::uint32_t block_shared = 0;
  std::int32_t version = 0;    ///< NCCL's version; 0: there is none
  std::int32_t may_share = 0;  ///< NCCL was told to let ranks share a device
  char why[128] = {};          ///< why there is no NCCL
};

}  // namespace

std::unique_ptr<TensorParallelGroup> try_nccl(MPI_Comm comm, kernels::cuda::CudaBackend& backend,
                                              const GroupWatch& watch, std::string& why) {
  Facts mine;
  gethostname(mine.host, sizeof mine.host - 1);
  const kernels::GpuInfo gpu = kernels::visible_gpus().gpus.at(backend.device());
  mine.place = gpu.place;
  mine.multiprocessors = gpu.multiprocessors;
  mine.block_shared = gpu.block_shared;
  const NcclApi* api = nccl_api(why);
  why.copy(mine.why, sizeof mine.why - 1);
  if (api != nullptr && api->get_version(&mine.version) != ncclSuccess) mine.version = 0;
  const char* told = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  mine.may_share = told != nullptr && std::string_view(told) == "1" ? 1 : 0;

  int ranks = 0;
  MPI_Comm_size(comm, &ranks);
  std::vector<Facts> all(ranks);
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm);
  for (int a = 0; a < ranks; ++a) {
    if (all[a].version == 0) {
      why = std::string("no NCCL on ") + all[a].host + ": " + all[a].why;
      return nullptr;
    }
    // A pass is captured when one of its sizes comes again. With equal devices this happens on all
    // ranks at once, as it must.
    if (all[a].multiprocessors != all[0].multiprocessors ||
        all[a].block_shared != all[0].block_shared) {
      why = "the ranks' GPUs are of different sizes";
      return nullptr;
    }
    for (int b = 0; b < a; ++b) {
      if (std::strcmp(all[a].host, all[b].host) != 0 || all[a].place != all[b].place) continue;
      const bool may = std::all_of(all.begin(), all.end(), [](const Facts& facts) {
        return facts.version >= kSharing && facts.may_share != 0;
      });
      if (may) continue;
      why = "ranks share a GPU, which takes NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1";
      return nullptr;
    }
  }
  return std::make_unique<NcclGroup>(comm, backend, *api, watch);
}

}  // namespace paceline::fabric
