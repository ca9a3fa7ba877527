// Matrix products of the CUDA backend on the emulation: the order of additions, for every tile,
// split and number of rows, to the bit.
#include <algorithm>
#include <memory>
#include <set>

#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/linear.hpp"
#include "runtime/core/error.hpp"
#include "tests/kernels/cuda_host/host_test_util.hpp"
#include "tests/kernels/kernels_test_util.hpp"

namespace paceline::kernels::cuda {
namespace {

using cuda_host::DeviceArray;
using cuda_host::TestStream;
using test::decode;
using test::poisoned;
using test::Random;
using test::same_bits;
using test::Values;

/// Few multiprocessors, so that blocks take several tiles each.
constexpr LinearDevice kSmall{2, true};
constexpr LinearDevice kLarge{132, true};
/// Compute capability 8.6, 8.9 or 12.0: the least shared memory.
constexpr LinearDevice kTight{84, false, 99 * 1024, 100 * 1024};

struct Workspace {
  Workspace() : memory(kLinearWorkspaceBytes) {
    // Counters are zero, the rest whatever it was.
    PACELINE_CUDA_CHECK(cudaMemset(memory.data(), 0, kLinearCounters * sizeof(unsigned)));
  }
  [[nodiscard]] bool counters_are_zero() const {
    std::vector<unsigned> counters(kLinearCounters);
    PACELINE_CUDA_CHECK(cudaMemcpy(counters.data(), memory.data(),
                                   kLinearCounters * sizeof(unsigned), cudaMemcpyDeviceToHost));
    return std::all_of(counters.begin(), counters.end(), [](unsigned x) { return x == 0; });
  }
  DeviceArray<std::byte> memory;
};

/// A weight [n, k] with its bias, packed on the device.
struct Weight {
  Weight(const Values& from, int n, int k, int segments, DType compute,
         const std::vector<float>& with_bias = {}, bool gated = false)
      : layout(linear_layout(n, k, segments, compute, gated)), packed(layout.bytes()) {
    if (!with_bias.empty()) {
      std::vector<float> of_features(n);
      for (int row = 0; row < n; ++row) of_features[feature_of(row, n, gated)] = with_bias[row];
      bias = std::make_unique<DeviceArray<float>>(of_features);
    }
    PACELINE_CUDA_CHECK(cudaMemset(packed.data(), 0, packed.size()));
    const DeviceArray<std::byte> stored(from.bytes);
    const TestStream stream;
    // In two ranges, the latter first, cut within a tile.
    const int first = n / 2;
    pack_rows(layout, packed.data(), first, n - first,
              stored.data() + static_cast<std::size_t>(first) * k * size_of(from.dtype), from.dtype,
              stream);
    pack_rows(layout, packed.data(), 0, first, stored.data(), from.dtype, stream);
    stream.synchronize();
  }
  [[nodiscard]] DeviceLinear view() const {
    return {layout, packed.data(), bias == nullptr ? nullptr : bias->data()};
  }
  LinearLayout layout;
  DeviceArray<std::byte> packed;
  std::unique_ptr<DeviceArray<float>> bias;  ///< or none
};

std::vector<float> multiply(const LinearPlan& plan, const Weight& weight, const Values& in,
                            int rows, Workspace& workspace) {
  const DeviceArray<std::byte> input(in.bytes);
  const std::size_t size = static_cast<std::size_t>(rows) * weight.layout.n;
  DeviceArray<float> out(poisoned(size));
  const TestStream stream;
  linear(plan, weight.view(), input.data(), rows, out.data(), {workspace.memory.data()}, stream);
  stream.synchronize();
  return out.host();
}

std::vector<std::byte> multiply_gated(const LinearPlan& plan, const Weight& weight,
                                      const Values& in, int rows, Workspace& workspace) {
  const DeviceArray<std::byte> input(in.bytes);
  const std::size_t size = static_cast<std::size_t>(rows) * weight.layout.n / 2;
  DeviceArray<std::byte> out(poisoned(size, weight.layout.dtype));
  const TestStream stream;
  linear_swiglu(plan, weight.view(), input.data(), rows, out.data(), {workspace.memory.data()},
                stream);
  stream.synchronize();
  return out.host();
}

/// The first `rows` rows of an input.
Values head(const Values& in, int rows, int k) {
  return {std::vector<float>(in.values.begin(), in.values.begin() + rows * k), in.dtype};
}

/// The definition, element by element. A link of the bf16 chain is the emulated mma: the products
/// added to the accumulator in double, rounded once.
float defined(const float* weight, const float* in, const LinearLayout& layout) {
  const int length = layout.segment_length();
  std::vector<float> sums;
  for (int s = 0; s < layout.segments; ++s) {
    float sum = 0;
    for (int first = 0; first < length; first += kChunk) {
      const int end = std::min(first + kChunk, length);
      float chain = 0;
      if (layout.dtype == DType::f32) {
        for (int i = first; i < end; ++i)
          chain = std::fma(weight[s * length + i], in[s * length + i], chain);
      } else {
        for (int step = first; step < end; step += kStep) {
          double link = chain;
          for (int i = step; i < std::min(step + kStep, end); ++i) {
            link += static_cast<double>(weight[s * length + i]) * in[s * length + i];
          }
          chain = static_cast<float>(link);
        }
      }
      sum += chain;
    }
    sums.push_back(sum);
  }
  for (std::size_t step = 1; step < sums.size(); step *= 2) {
    for (std::size_t s = 0; s < sums.size(); s += 2 * step) sums[s] += sums[s + step];
  }
  return sums[0];
}

std::vector<float> defined(const Values& weight, const Values& in, const LinearLayout& layout,
                           const std::vector<float>& bias = {}) {
  const int rows = static_cast<int>(in.values.size()) / layout.k;
  std::vector<float> out(static_cast<std::size_t>(rows) * layout.n);
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < layout.n; ++j) {
      float& x = out[static_cast<std::size_t>(r) * layout.n + j];
      x = defined(&weight.values[static_cast<std::size_t>(j) * layout.k],
                  &in.values[static_cast<std::size_t>(r) * layout.k], layout);
      if (!bias.empty()) x += bias[j];
    }
  }
  return out;
}

std::string describe(const LinearPlan& plan, int rows) {
  const TileTraits& tile = tile_traits()[plan.shape];
  return std::to_string(rows) + " rows, tiles of " + std::to_string(tile.features) + " x " +
         std::to_string(tile.rows) + ", " + std::to_string(plan.splits) + " splits, grid " +
         std::to_string(plan.grid);
}

class CudaLinearTest : public testing::TestWithParam<DType> {};

/// Every plan gives the bits of the definition, whatever the number of rows.
void every_plan_gives_the_definition(DType dtype, int n, int k, int segments,
                                     const std::vector<int>& row_counts,
                                     const LinearDevice& device) {
  Random random(n + k + segments);
  Workspace workspace;
  const Values values(random.normals(static_cast<std::size_t>(n) * k), dtype);
  const std::vector<float> bias = random.normals(n);
  const Weight weight(values, n, k, segments, dtype, bias);
  const int most = *std::max_element(row_counts.begin(), row_counts.end());
  const Values in(random.normals(static_cast<std::size_t>(most) * k), dtype);
  const std::vector<float> expected = defined(values, in, weight.layout, bias);
  for (const int rows : row_counts) {
    const Values part = head(in, rows, k);
    for (const LinearPlan& plan : linear_plans(weight.layout, rows, device)) {
      const std::vector<float> out = multiply(plan, weight, part, rows, workspace);
      ASSERT_TRUE(same_bits(out, {expected.begin(), expected.begin() + rows * n}))
          << n << " x " << k << ", " << segments << " segments, " << describe(plan, rows);
    }
  }
  EXPECT_TRUE(workspace.counters_are_zero());
}

TEST_P(CudaLinearTest, EveryPlanGivesTheDefinition) {
  every_plan_gives_the_definition(GetParam(), 50, 896, 1, {1, 7, 8, 9, 33}, kSmall);
  every_plan_gives_the_definition(GetParam(), 210, 330, 1, {65, 130}, kSmall);
  every_plan_gives_the_definition(GetParam(), 37, 1000, 2, {2, 17}, kSmall);
  every_plan_gives_the_definition(GetParam(), 41, 1000, 4, {1, 40}, kLarge);
  every_plan_gives_the_definition(GetParam(), 200, 352, 8, {3, 129}, kSmall);
  every_plan_gives_the_definition(GetParam(), 33, 4096, 64, {5}, kSmall);
  // Whole groups of the raster: 16 tiles of 8 rows, 16 of 16, ...
  every_plan_gives_the_definition(GetParam(), 34, 64, 1, {128, 256}, kSmall);
}

TEST_P(CudaLinearTest, EveryPlanGivesTheProductsGated) {
  const DType dtype = GetParam();
  Random random(8);
  Workspace workspace;
  for (const auto& [width, k, segments, rows] : {std::tuple{25, 896, 1, 7},
                                                 {105, 330, 1, 130},
                                                 {37, 1000, 2, 17},
                                                 {64, 1000, 4, 40},
                                                 {100, 352, 8, 129}}) {
    const int n = 2 * width;
    const Values values(random.normals(static_cast<std::size_t>(n) * k, 0.1F), dtype);
    const std::vector<float> bias = random.normals(n);
    const Weight weight(values, n, k, segments, dtype, bias, true);
    const Values in(random.normals(static_cast<std::size_t>(rows) * k), dtype);
    const std::vector<float> products = defined(values, in, weight.layout, bias);
    std::vector<float> gated;
    for (int r = 0; r < rows; ++r) {
      const float* row = &products[static_cast<std::size_t>(r) * n];
      for (int j = 0; j < width; ++j) gated.push_back(swiglu_value(row[j], row[width + j]));
    }
    const Values expected(gated, dtype);
    for (const LinearPlan& plan : linear_plans(weight.layout, rows, kSmall)) {
      ASSERT_EQ(multiply_gated(plan, weight, in, rows, workspace), expected.bytes)
          << n << " x " << k << ", " << segments << " segments, " << describe(plan, rows);
    }
    EXPECT_TRUE(workspace.counters_are_zero());
    // What takes turns is in no order that anybody else wants.
    EXPECT_THROW(static_cast<void>(multiply(LinearPlan{}, weight, in, rows, workspace)), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaLinearTest, testing::Values(DType::bf16, DType::f32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

// The emulation runs one block after another, so blocks that kept their sums in the same place
// would give the right results here, and wrong ones on a device. What tells is where they have
// written.
TEST(CudaLinearWorkspaceTest, BlocksAndSplitsKeepSumsInPlacesOfTheirOwn) {
  const int n = 300;
  const int k = 8 * 40;
  const int rows = 20;
  Random random(9);
  Workspace workspace;
  const Weight weight(Values(random.normals(n * k), DType::bf16), n, k, 8, DType::bf16);
  const Values in(random.normals(rows * k), DType::bf16);
  constexpr std::size_t kCounterBytes = kLinearCounters * sizeof(unsigned);
  int of_blocks = 0;
  int of_both = 0;
  for (const LinearPlan& plan : linear_plans(weight.layout, rows, kSmall)) {
    const TileTraits& tile = tile_traits()[plan.shape];
    const std::size_t tiles = static_cast<std::size_t>((n + tile.features - 1) / tile.features) *
                              ((rows + tile.rows - 1) / tile.rows);
    const std::size_t levels = tree_levels(weight.layout.segments / plan.splits);
    const std::size_t waiting = plan.grid * levels;
    const std::size_t sums = waiting + (plan.splits > 1 ? tiles * plan.splits : 0);
    // As much again must stay as it is. NaN, which no sum of these numbers is.
    std::vector<float> after(2 * std::max<std::size_t>(sums, 1) * tile.tile_bytes / sizeof(float));
    const std::size_t bytes = after.size() * sizeof(float);
    ASSERT_LE(kCounterBytes + bytes, kLinearWorkspaceBytes);
    PACELINE_CUDA_CHECK(cudaMemset(workspace.memory.data() + kCounterBytes, 0xFF, bytes));
    static_cast<void>(multiply(plan, weight, in, rows, workspace));
    PACELINE_CUDA_CHECK(cudaMemcpy(after.data(), workspace.memory.data() + kCounterBytes, bytes,
                                   cudaMemcpyDeviceToHost));
    // There are as many places as sums, so if all of them are written, none is written by two.
    const std::size_t used = sums * tile.tile_bytes / sizeof(float);
    for (std::size_t i = 0; i < after.size(); ++i) {
      const std::size_t sum = i * sizeof(float) / tile.tile_bytes;
      ASSERT_EQ(std::isnan(after[i]), i >= used)
          << describe(plan, rows) << ", "
          << (sum < waiting ? "block " + std::to_string(sum / levels) + ", level " +
                                  std::to_string(sum % levels)
              : sum < sums ? "part " + std::to_string(sum - waiting)
                           : "past the last sum");
    }
    // Several blocks, some of which have several places and reuse theirs.
    const bool shared = plan.grid >= 2 && tiles * plan.splits > static_cast<unsigned>(plan.grid);
    if (shared && plan.splits == 1 && levels >= 2) ++of_blocks;
    if (shared && plan.splits > 1 && levels >= 2) ++of_both;
  }
  EXPECT_GE(of_blocks, 3);
  EXPECT_GE(of_both, 3);  // or there was nothing to confuse
  EXPECT_TRUE(workspace.counters_are_zero());
}

TEST(CudaLinearPlanTest, LayoutsRefuseWhatCannotBeCut) {
  EXPECT_THROW(static_cast<void>(linear_layout(4, 24, 3, DType::bf16)), Error);
  EXPECT_THROW(static_cast<void>(linear_layout(4, 24, 8, DType::bf16)), Error);  // odd segments
  EXPECT_THROW(static_cast<void>(linear_layout(4, 256, 128, DType::bf16)), Error);
  EXPECT_THROW(static_cast<void>(linear_layout(0, 24, 1, DType::bf16)), Error);
  EXPECT_THROW(static_cast<void>(linear_layout(3, 24, 1, DType::bf16, true)), Error);
  EXPECT_EQ(linear_layout(17, 24, 4, DType::bf16).bytes(), 2U * 4 * 512);
}

TEST(CudaLinearPlanTest, PlansFitTheirWorkspaceAndShareWholeSegments) {
  for (const int segments : {1, 4, 64}) {
    for (const int rows : {1, 100, 8192}) {
      const LinearLayout layout = linear_layout(3584, 18944, segments, DType::bf16);
      const std::vector<LinearPlan> plans = linear_plans(layout, rows, kLarge);
      EXPECT_NE(std::find(plans.begin(), plans.end(), plan_linear(layout, rows, kLarge)),
                plans.end());
      for (const LinearPlan& plan : plans) {
        const TileTraits& tile = tile_traits()[plan.shape];
        const std::size_t tiles = static_cast<std::size_t>(
            (3584 + tile.features - 1) / tile.features * ((rows + tile.rows - 1) / tile.rows));
        ASSERT_EQ(segments % plan.splits, 0);
        ASSERT_GE(plan.grid, 1);
        const std::size_t waiting =
            static_cast<std::size_t>(plan.grid) * tree_levels(segments / plan.splits);
        const std::size_t parts = plan.splits > 1 ? tiles * plan.splits : 0;
        ASSERT_LE(kLinearCounters * sizeof(unsigned) + (waiting + parts) * tile.tile_bytes,
                  kLinearWorkspaceBytes)
            << describe(plan, rows);
        if (plan.splits > 1) {
          ASSERT_LE(tiles, static_cast<std::size_t>(kLinearCounters));
        }
      }
    }
  }
}

TEST(CudaLinearPlanTest, TilesFitTheDevicesSharedMemory) {
  const LinearLayout layout = linear_layout(18944, 3584, 1, DType::bf16);
  std::set<int> shapes;
  for (const int rows : {1, 8, 16, 32, 64, 100, 256, 1280}) {
    for (const LinearPlan& plan : linear_plans(layout, rows, kTight)) {
      const TileTraits& tile = tile_traits()[plan.shape];
      ASSERT_LE(tile.shared_bytes, kTight.block_shared) << describe(plan, rows);
      // As many blocks as are there at once, or one for each tile.
      ASSERT_LE(plan.grid, kTight.multiprocessors * (kTight.shared / (tile.shared_bytes + 1024)));
      shapes.insert(plan.shape);
    }
    EXPECT_FALSE(linear_plans(layout, rows, kTight).empty()) << rows;
  }
  EXPECT_GE(shapes.size(), 3U);
  const auto large = linear_plans(layout, 1280, kLarge);
  EXPECT_TRUE(std::any_of(large.begin(), large.end(), [](const LinearPlan& plan) {
    return tile_traits()[plan.shape].shared_bytes > kTight.block_shared;
  }));  // or there is nothing to leave out
}

TEST(CudaLinearPlanTest, ColumnsAreCutByKAlone) {
  for (const auto& [k, segments] : {std::pair{896, 1},
                                    {2048, 1},
                                    {3040, 1},
                                    {3072, 2},
                                    {3080, 1},
                                    {3088, 1},
                                    {3104, 2},
                                    {3584, 2},
                                    {5120, 2}})
    EXPECT_EQ(column_segments(k), segments) << k;
}

TEST(CudaLinearPlanTest, BlocksShareTilesWhereThereAreFew) {
  // As was measured to be best on an H100.
  for (const auto& [n, k, rows] :
       {std::tuple{4608, 3584, 64}, {4608, 3584, 128}, {7168, 5120, 64}}) {
    const LinearLayout layout = linear_layout(n, k, column_segments(k), DType::bf16);
    const LinearPlan plan = plan_linear(layout, rows, kLarge);
    EXPECT_EQ(plan.splits, 2) << describe(plan, rows);
  }
  const LinearLayout many = linear_layout(37888, 3584, kGateUpSegments, DType::bf16);
  EXPECT_EQ(plan_linear(many, 256, kLarge).splits, 1);
}

TEST(CudaLinearPlanTest, OneRowKeepsEnoughOfTheWeightInFlight) {
  // Memory of 4.8 TB/s at a microsecond's latency wants about 40 KB for each of 132
  // multiprocessors.
  for (const auto& [n, k, segments] : {std::tuple{4608, 3584, 2},
                                       {3584, 3584, 4},
                                       {37888, 3584, 1},
                                       {3584, 18944, 4},
                                       {7168, 5120, 2},
                                       {5120, 5120, 8},
                                       {55296, 5120, 1},
                                       {5120, 27648, 8}}) {
    const LinearLayout layout = linear_layout(n, k, segments, DType::bf16);
    const LinearPlan plan = plan_linear(layout, 1, kLarge);
    const TileTraits& tile = tile_traits()[plan.shape];
    EXPECT_GE(static_cast<double>(plan.grid) * tile.flight, 132 * 40e3)
        << n << " x " << k << ", " << describe(plan, 1);
    EXPECT_EQ(tile.rows, 8);
  }
}

}  // namespace
}  // namespace paceline::kernels::cuda
