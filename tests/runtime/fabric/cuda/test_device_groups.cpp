// Groups of devices over real MPI ranks, each with an emulated device. The argument says which:
// "nccl" (over its stand-in) or "staged".
#include <cstring>
#include <string>
#include <vector>

#include "kernels/gpus.hpp"
#include "runtime/fabric/cuda/nccl_group.hpp"
#include "runtime/fabric/cuda/staged_group.hpp"
#include "runtime/fabric/cuda/try_nccl.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "tests/runtime/fabric/collective_data.hpp"
#include "tests/runtime/fabric/rank_check.hpp"

using namespace paceline;

namespace {

/// Little, so that sums and rows come in pieces; but for a slice of a sum there is room.
constexpr std::size_t kRoom = std::size_t{1} << 20;

/// Device memory with these values.
class DeviceFloats {
 public:
  DeviceFloats(kernels::Backend& backend, const std::vector<float>& values)
      : backend_(backend), buffer_(backend.allocate(values.size() * sizeof(float))) {
    set(values);
  }
  void set(const std::vector<float>& values) {
    backend_.write(buffer_->data(), std::as_bytes(std::span(values)));
  }
  [[nodiscard]] std::span<float> span() {
    return {reinterpret_cast<float*>(buffer_->data()), buffer_->size() / sizeof(float)};
  }
  [[nodiscard]] std::vector<float> host() {
    std::vector<float> values(buffer_->size() / sizeof(float));
    backend_.read(buffer_->data(), std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  kernels::Backend& backend_;
  std::unique_ptr<kernels::Buffer> buffer_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// From a value to more than there is room for at once, by slices and without.
void check_sums(TensorParallelGroup& group, kernels::Backend& backend) {
  for (const int count : {1, 7, 4096, 140'001, 300'001}) {
    DeviceFloats values(backend, fabric::test::part(group.rank(), 0, count));
    group.all_reduce_tree(values.span());
    CHECK(same_bits(values.host(), fabric::test::tree_sum(0, group.size(), 0, count)));
  }
}

// Passes that come again: launched, recorded, replayed; or launched each time.
void check_recorded(TensorParallelGroup& group, kernels::Backend& backend) {
  const auto recording = backend.make_recording({0, false, group.recordable()});
  const TokenId token = 0;
  const std::int32_t block = 0;
  const kernels::Segment segment{0, 1, 0, &block, nullptr};
  constexpr int kCount = 1000;
  DeviceFloats values(backend, fabric::test::part(0, 0, kCount));
  int calls = 0;
  constexpr int kPasses = 4;
  for (int pass = 0; pass < kPasses; ++pass) {
    values.set(fabric::test::part(group.rank(), pass, kCount));
    backend.begin({{&token, 1}, {&segment, 1}, {}, 0, {}, nullptr, 1, 1});
    backend.run(*recording, [&](kernels::Operations&) {
      ++calls;
      group.all_reduce_tree(values.span());
      group.all_reduce_tree(values.span().first(kCount / 2));
    });
    CHECK(backend.pass_seconds() >= 0);
    std::vector<float> expected = fabric::test::tree_sum(0, group.size(), pass, kCount);
    for (int i = 0; i < kCount / 2; ++i) expected[i] *= static_cast<float>(group.size());
    CHECK(same_bits(values.host(), expected));
  }
  CHECK(calls == (group.recordable() ? 2 : kPasses));
}

void check_rows(TensorParallelGroup& group, kernels::Backend& backend) {
  const int ranks = group.size();
  for (const int rows : {0, 1, 3, 64, 4100}) {
    const fabric::test::ExchangedRows matrix(group.rank(), ranks, rows);
    const std::vector<float> expected = matrix.expected();
    DeviceFloats send(backend, matrix.sent());
    DeviceFloats receive(backend, std::vector<float>(expected.size()));
    group.exchange_rows(send.span(), matrix.columns, matrix.first, receive.span());
    // Host memory, behind what the device does: without it ranks that got no rows would be gone.
    std::vector<std::byte> bytes(ranks);
    const std::byte own{static_cast<unsigned char>(group.rank())};
    group.all_gather({&own, 1}, std::vector<int>(ranks, 1), bytes);
    for (int r = 0; r < ranks; ++r) CHECK(bytes[r] == static_cast<std::byte>(r));
    CHECK(receive.host() == expected);
  }
}

// Rows that each rank has a part of, maybe none.
void check_gathered(TensorParallelGroup& group, kernels::Backend& backend) {
  const int ranks = group.size();
  for (const int most : {0, 1, 5, 3000}) {
    constexpr int kWidth = 17;
    std::vector<int> first{0};
    for (int r = 0; r < ranks; ++r) first.push_back(first.back() + (r == 1 ? 0 : most + r % 2));
    const std::vector<float> expected = fabric::test::part(0, most, first.back() * kWidth);
    std::vector<float> own(expected.size(), -1.0F);
    for (int i = first[group.rank()] * kWidth; i < first[group.rank() + 1] * kWidth; ++i)
      own[i] = expected[i];
    DeviceFloats rows(backend, own);
    group.gather_rows(rows.span(), first);
    CHECK(same_bits(rows.host(), expected));
  }
}

void check_group(TensorParallelGroup& group, kernels::Backend& backend) {
  check_sums(group, backend);
  check_recorded(group, backend);
  check_rows(group, backend);
  check_gathered(group, backend);
}

}  // namespace

int main(int argc, char** argv) {
  const fabric::MpiEnvironment mpi(&argc, &argv);
  const bool nccl = argc == 2 && std::string(argv[1]) == "nccl";
  // Emulated devices are one device to whoever asks.
  if (nccl) setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  {
    const auto made = kernels::make_cuda_backend(0);
    auto& backend = dynamic_cast<kernels::cuda::CudaBackend&>(*made);
    const fabric::GroupWatch watch{600, [](const std::string& why) {
                                     std::fprintf(stderr, "lost: %s\n", why.c_str());
                                     MPI_Abort(MPI_COMM_WORLD, 1);
                                   }};
    const fabric::MadeGroup chosen = fabric::make_group(MPI_COMM_WORLD, backend, watch);
    CHECK(chosen.explanation.starts_with(nccl ? "sums over NCCL" : "sums through host memory: "));
    check_group(*chosen.group, backend);
    std::string why;
    const fabric::NcclApi* api = fabric::nccl_api(why);
    CHECK(api != nullptr);
    if (nccl && api != nullptr) {
      fabric::NcclGroup tight(MPI_COMM_WORLD, backend, *api, watch, kRoom);
      check_group(tight, backend);
    }
  }
  return fabric::test::verdict(mpi);
}
