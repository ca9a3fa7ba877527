// The stand-in for NCCL ends the job where ranks do not fit together. The argument says what rank 0
// does otherwise than rank 1; "nothing" ends well, so that it is that which ends the others.
#include <mpi.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/fabric/cuda/nccl_api.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "tests/kernels/cuda_host/host_test_util.hpp"
#include "tests/runtime/fabric/rank_check.hpp"

using namespace paceline;

namespace {

constexpr int kCount = 100;

class Rank {
 public:
  Rank(const fabric::NcclApi& api, int rank) : api_(api), rank_(rank) {
    ncclUniqueId id;
    if (rank == 0) CHECK(api.get_unique_id(&id) == ncclSuccess);
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK(api.comm_init_rank(&comm_, 2, id, rank) == ncclSuccess);
  }
  ~Rank() { CHECK(api_.comm_destroy(comm_) == ncclSuccess); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// As many values as this from each.
  void gather(int count) {
    CHECK(api_.all_gather(mine_.data(), all_.data(), count, ncclFloat, comm_, stream_) ==
          ncclSuccess);
  }
  void gather_replayed(int count) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    PACELINE_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    gather(count);
    PACELINE_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
    PACELINE_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    PACELINE_CUDA_CHECK(cudaGraphDestroy(graph));
    PACELINE_CUDA_CHECK(cudaGraphLaunch(executable, stream_));
    stream_.synchronize();
    PACELINE_CUDA_CHECK(cudaGraphExecDestroy(executable));
  }
  void receive_from_itself() {
    CHECK(api_.recv(all_.data(), kCount, ncclFloat, rank_, comm_, stream_) == ncclSuccess);
  }
  void check_all() {
    stream_.synchronize();
    std::vector<float> expected(kCount, 0.0F);
    expected.resize(2 * kCount, 1.0F);
    CHECK(all_.host() == expected);
  }

 private:
  const fabric::NcclApi& api_;
  int rank_;
  ncclComm_t comm_ = nullptr;
  cuda_host::TestStream stream_;
  cuda_host::DeviceArray<float> mine_{std::vector<float>(2 * kCount, static_cast<float>(rank_))};
  cuda_host::DeviceArray<float> all_{static_cast<std::size_t>(2 * kCount)};
};

void run(Rank& rank, const std::string& otherwise) {
  if (otherwise == "unsent") rank.receive_from_itself();
  if (otherwise == "replayed") rank.gather_replayed(kCount);
  if (otherwise == "more") rank.gather(kCount + 1);
  if (otherwise == "less") rank.gather(kCount - 1);
  if (otherwise == "nothing") rank.gather(kCount);
  rank.check_all();
}

}  // namespace

int main(int argc, char** argv) {
  const fabric::MpiEnvironment mpi(&argc, &argv);
  std::string why;
  const fabric::NcclApi* api = fabric::nccl_api(why);
  CHECK(api != nullptr && argc == 2 && mpi.size() == 2);
  if (api != nullptr && argc == 2) {
    Rank rank(*api, mpi.rank());
    run(rank, mpi.rank() == 0 ? argv[1] : "nothing");
  }
  return fabric::test::verdict(mpi);
}
