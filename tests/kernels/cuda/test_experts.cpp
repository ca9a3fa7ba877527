// Products by experts of the CUDA backend on the emulation: every tile gives each row what the
// product by its expert's matrix alone gives, to the bit.
#include <algorithm>
#include <memory>
#include <numeric>

#include "kernels/cuda/experts.hpp"
#include "tests/kernels/cuda_host/host_test_util.hpp"
#include "tests/kernels/kernels_test_util.hpp"

namespace paceline::kernels::cuda {
namespace {

using cuda_host::DeviceArray;
using cuda_host::TestStream;
using test::Random;
using test::Values;

constexpr LinearDevice kDevice{2, true};  // few blocks, so that they take several units each

struct Experts {
  Experts(Random& random, int n, int k, int count, bool gated)
      : layout(linear_layout(n, k, 1, DType::bf16, gated)) {
    const TestStream stream;
    for (int i = 0; i < count; ++i) {
      const Values values(random.normals(static_cast<std::size_t>(n) * k), DType::bf16);
      const DeviceArray<std::byte> stored(values.bytes);
      packed.push_back(std::make_unique<DeviceArray<std::byte>>(layout.bytes()));
      PACELINE_CUDA_CHECK(cudaMemset(packed.back()->data(), 0, layout.bytes()));
      pack_rows(layout, packed.back()->data(), 0, n, stored.data(), DType::bf16, stream);
      stream.synchronize();
      matrices.of[i] = packed.back()->data();
    }
  }
  LinearLayout layout;
  std::vector<std::unique_ptr<DeviceArray<std::byte>>> packed;
  ExpertMatrices matrices{};
};

TEST(CudaExpertsTest, EveryTileGivesTheProductsOfEachMatrix) {
  Random random(5);
  const TestStream stream;
  DeviceArray<std::byte> workspace(kLinearWorkspaceBytes);
  PACELINE_CUDA_CHECK(cudaMemset(workspace.data(), 0, kLinearCounters * sizeof(unsigned)));
  // Experts of no row, of one, and of more than a tile.
  const std::vector<int> rows_of = {3, 0, 1, 150, 20, 0};
  const int count = static_cast<int>(rows_of.size());
  const int places = std::accumulate(rows_of.begin(), rows_of.end(), 0);
  for (const bool gated : {false, true}) {
    constexpr int kWidth = 304;
    constexpr int kDepth = 336;  // a chunk, and one that ends early
    const Experts experts(random, kWidth, kDepth, count, gated);
    const Values in(random.normals(static_cast<std::size_t>(places) * kDepth), DType::bf16);
    const DeviceArray<std::byte> input(in.bytes);
    const std::size_t out_row = gated ? kWidth / 2 * 2 : kWidth * sizeof(float);  // bytes
    const auto product = [&](const std::byte* matrix, int first, int rows, std::byte* out) {
      const LinearPlan plan = plan_linear(experts.layout, rows, kDevice);
      const std::byte* from = input.data() + static_cast<std::size_t>(first) * kDepth * 2;
      if (gated) {
        linear_swiglu(plan, {experts.layout, matrix, nullptr}, from, rows, out, {workspace.data()},
                      stream);
      } else {
        linear(plan, {experts.layout, matrix, nullptr}, from, rows, reinterpret_cast<float*>(out),
               {workspace.data()}, stream);
      }
    };
    DeviceArray<std::byte> expected(places * out_row);
    for (int expert = 0, first = 0; expert < count; first += rows_of[expert++]) {
      product(experts.matrices.of[expert], first, rows_of[expert],
              expected.data() + first * out_row);
    }
    stream.synchronize();

    for (const int shape : kExpertShapes) {
      std::vector<int> starts(1);
      std::vector<int> tiles(1);
      const int tile_rows = tile_traits()[shape].rows;
      for (const int rows : rows_of) {
        starts.push_back(starts.back() + rows);
        tiles.push_back(tiles.back() + (rows + tile_rows - 1) / tile_rows);
      }
      DeviceArray<int> device_starts(starts);
      DeviceArray<int> device_tiles(tiles);
      DeviceArray<std::byte> out(std::vector<std::byte>(places * out_row, std::byte{0xFF}));
      multiply_experts({shape, 1, 2}, experts.layout, experts.matrices, count,
                       {device_starts.data(), device_tiles.data(), nullptr, nullptr}, input.data(),
                       places, out.data(), stream);
      stream.synchronize();
      EXPECT_EQ(out.host(), expected.host()) << "tiles of " << tile_traits()[shape].features
                                             << " x " << tile_rows << (gated ? ", gated" : "");
    }
  }
}

TEST(CudaExpertsTest, PlansHaveOneTileHeightAndNoSplits) {
  const LinearLayout gate_up = linear_layout(1536, 2048, 1, DType::bf16, true);
  // The copy engine does not take the rows of the last.
  for (const LinearLayout& down :
       {linear_layout(2048, 768, 1, DType::bf16), linear_layout(64, 24, 1, DType::bf16)}) {
    for (const LinearDevice& device :
         {LinearDevice{132, true}, LinearDevice{84, false, 99 * 1024, 100 * 1024}}) {
      for (const int rows : {1, 8, 64, 512, 2048, 32768}) {
        const ExpertPlans plans = plan_experts(gate_up, down, rows, 128, device);
        EXPECT_EQ(tile_traits()[plans.gate_up.shape].rows, tile_traits()[plans.down.shape].rows);
        for (const LinearPlan& plan : {plans.gate_up, plans.down}) {
          EXPECT_NE(std::find(std::begin(kExpertShapes), std::end(kExpertShapes), plan.shape),
                    std::end(kExpertShapes));
          EXPECT_EQ(plan.splits, 1);
          EXPECT_GT(plan.grid, 0);
          EXPECT_LE(tile_traits()[plan.shape].shared_bytes, device.block_shared);
          EXPECT_TRUE(device.warpgroups || !tile_traits()[plan.shape].warpgroups);
        }
        EXPECT_TRUE(down.k == 768 || !tile_traits()[plans.down.shape].warpgroups);
      }
    }
  }
}

}  // namespace
}  // namespace paceline::kernels::cuda
