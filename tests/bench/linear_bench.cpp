// Every way the CUDA backend has to compute a matrix product, at the shapes of Qwen2.5 0.5B, 7B and
// 32B in bf16: bench_linear [--quick] [--plans] [--model NAME] [--estimate]. All must give one
// result, to the bit: a row does not depend on tiles, splits, nor on how many rows there are. Times
// say which way is best and how good the choice of plan_linear() is; --quick leaves them out,
// --plans prints those of every plan, --model 7B takes the shapes of one model alone. Launches go
// through a graph, over copies of the weight that no cache holds. --estimate prints what is chosen
// for an H200 and how near to its limits that is expected to come, which needs no device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>
#include <vector>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/memory.hpp"
#include "runtime/core/error.hpp"
#include "tests/bench/device_timing.hpp"

namespace {

using namespace paceline;
using namespace paceline::kernels::cuda;
using bench::on_device;
using bench::random_bf16;
using bench::Stream;
using bench::time_of;

struct Shape {
  const char* name;
  int n, k;
  int segments;
  bool gated = false;
  [[nodiscard]] LinearLayout layout() const {
    return linear_layout(n, k, segments, DType::bf16, gated);
  }
};
constexpr Shape qkv(const char* name, int n, int k) { return {name, n, k, column_segments(k)}; }
constexpr Shape gate_up(const char* name, int n, int k) {
  return {name, n, k, kGateUpSegments, true};
}
constexpr Shape kShapes[] = {
    qkv("0.5B qkv", 1152, 896),          {"0.5B o", 896, 896, 2},
    gate_up("0.5B gate_up", 9728, 896),  {"0.5B down", 896, 4864, 2},
    qkv("7B qkv", 4608, 3584),           {"7B o", 3584, 3584, 4},
    gate_up("7B gate_up", 37888, 3584),  {"7B down", 3584, 18944, 4},
    qkv("32B qkv", 7168, 5120),          {"32B o", 5120, 5120, 8},
    gate_up("32B gate_up", 55296, 5120), {"32B down", 5120, 27648, 8},
};
constexpr int kRows[] = {1, 8, 16, 32, 64, 128, 256, 1280, 4096};
constexpr int kMostRows = 4096;

/// Returns how many results differed from the first plan's.
int measure(const Shape& shape, const LinearDevice& device, bool quick, bool print_plans) {
  const Stream stream;
  const LinearLayout layout = shape.layout();
  std::vector<DeviceMemory> weights;
  {
    const DeviceMemory stored =
        on_device(random_bf16(static_cast<std::size_t>(shape.n) * shape.k, 1));
    constexpr std::size_t kBeyondCaches = std::size_t{300} << 20;
    do {
      weights.emplace_back(layout.bytes());
      PACELINE_CUDA_CHECK(cudaMemsetAsync(weights.back().data(), 0, weights.back().size(), stream));
      pack_rows(layout, weights.back().data(), 0, shape.n, stored.data(), DType::bf16, stream);
    } while (!quick && weights.size() * layout.bytes() < kBeyondCaches);
    PACELINE_CUDA_CHECK(cudaStreamSynchronize(stream));
  }
  const DeviceMemory in = on_device(random_bf16(static_cast<std::size_t>(kMostRows) * shape.k, 2));
  const DeviceMemory out(static_cast<std::size_t>(kMostRows) * shape.n * sizeof(float));
  const DeviceMemory workspace(kLinearWorkspaceBytes);
  PACELINE_CUDA_CHECK(cudaMemsetAsync(workspace.data(), 0, workspace.size(), stream));

  int differing = 0;
  std::vector<std::byte> expected;  // of the most rows so far
  for (int i = static_cast<int>(std::size(kRows)) - 1; i >= 0; --i) {
    const int rows = kRows[i];
    const LinearPlan chosen = plan_linear(layout, rows, device);
    double chosen_time = 0;
    double best_time = 1e9;
    LinearPlan best;
    int plans = 0;
    for (const LinearPlan& plan : linear_plans(layout, rows, device)) {
      // Plans of tiles far too small for so many rows only take time.
      if (tile_traits()[plan.shape].rows * 64 < rows && plan != chosen) continue;
      const auto run = [&](int launch) {
        const DeviceLinear weight{layout, weights[launch % weights.size()].data(), nullptr};
        if (shape.gated) {
          linear_swiglu(plan, weight, in.data(), rows, out.data(), {workspace.data()}, stream);
        } else {
          linear(plan, weight, in.data(), rows, reinterpret_cast<float*>(out.data()),
                 {workspace.data()}, stream);
        }
      };
      const std::size_t size = rows * (shape.gated ? shape.n : std::size_t{4} * shape.n);
      std::vector<std::byte> result(size);
      PACELINE_CUDA_CHECK(cudaMemsetAsync(out.data(), 0xFF, size, stream));
      run(0);
      PACELINE_CUDA_CHECK(
          cudaMemcpyAsync(result.data(), out.data(), size, cudaMemcpyDeviceToHost, stream));
      PACELINE_CUDA_CHECK(cudaStreamSynchronize(stream));
      if (expected.empty()) expected = result;
      if (std::memcmp(result.data(), expected.data(), size) != 0) {
        ++differing;
        const TileTraits& tile = tile_traits()[plan.shape];
        std::printf("DIFFERS: %s, %d rows, tiles of %d x %d, %d splits\n", shape.name, rows,
                    tile.features, tile.rows, plan.splits);
      }
      ++plans;
      if (quick) continue;
      const double seconds = time_of(stream, run);
      if (print_plans) {
        const TileTraits& tile = tile_traits()[plan.shape];
        std::printf("plan %s, %d rows, %d x %d%s in %d: %.2f us, %.0f clocks estimated\n",
                    shape.name, rows, tile.features, tile.rows,
                    tile.warpgroups ? " by warpgroups" : "", plan.splits, seconds * 1e6,
                    estimated_clocks(plan, layout, rows, device));
      }
      if (plan == chosen) chosen_time = seconds;
      if (seconds < best_time) {
        best_time = seconds;
        best = plan;
      }
    }
    if (quick) continue;
    const TileTraits& tile = tile_traits()[chosen.shape];
    const TileTraits& best_tile = tile_traits()[best.shape];
    const double bytes = 2.0 * shape.n * shape.k;
    std::printf(
        "%-12s %5d rows: %8.2f us %5.2f TB/s %6.1f Tflop/s with %3d x %-3d%s in %d (estimated %.0f "
        "clocks); best of %2d: %8.2f us with %3d x %-3d%s in %d\n",
        shape.name, rows, chosen_time * 1e6, bytes / chosen_time * 1e-12,
        bytes * rows / chosen_time * 1e-12, tile.features, tile.rows, tile.warpgroups ? "g" : " ",
        chosen.splits, estimated_clocks(chosen, layout, rows, device), plans, best_time * 1e6,
        best_tile.features, best_tile.rows, best_tile.warpgroups ? "g" : " ", best.splits);
    std::fflush(stdout);
  }
  return differing;
}

/// What the choice expects: no measurement.
void estimate(const Shape& shape, const LinearDevice& device) {
  // Data-sheet figures of an H200, a clock of 1.7 GHz.
  constexpr double kMemoryBytes = 2800;          // whole device
  constexpr double kMultiprocessorFlops = 4096;  // bf16, dense
  const LinearLayout layout = shape.layout();
  const double weights = 2.0 * shape.n * shape.k;
  std::printf("%-12s", shape.name);
  for (const int rows : {1, 32, 64, 128, 256, 1280}) {
    const LinearPlan plan = plan_linear(layout, rows, device);
    const TileTraits& tile = tile_traits()[plan.shape];
    const double limit = std::max((weights + rows * layout.row_bytes()) / kMemoryBytes,
                                  weights * rows / (kMultiprocessorFlops * device.multiprocessors));
    std::printf("  %4d rows: %3.0f %% (%3d x %-3d in %d)", rows,
                100 * limit / estimated_clocks(plan, layout, rows, device), tile.features,
                tile.rows, plan.splits);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  bool quick = false;
  bool estimates = false;
  bool print_plans = false;
  std::string_view model;
  LinearDevice device;
  device.warpgroups = true;  // of an H200
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else if (std::strcmp(argv[i], "--plans") == 0) {
      print_plans = true;
    } else if (std::strcmp(argv[i], "--model") == 0 && i + 1 < argc) {
      model = argv[++i];
    } else if (std::strcmp(argv[i], "--estimate") == 0) {
      estimates = true;
    } else {
      std::fprintf(stderr, "usage: %s [--quick] [--plans] [--model 0.5B|7B|32B] [--estimate]\n",
                   argv[0]);
      return 64;
    }
  }
  if (estimates) {
    for (const Shape& shape : kShapes) estimate(shape, device);
    return 0;
  }
  try {
    int number = 0;
    PACELINE_CUDA_CHECK(cudaGetDevice(&number));
    device = facts_of(number);
    int differing = 0;
    for (const Shape& shape : kShapes) {
      if (std::string_view(shape.name).starts_with(model))
        differing += measure(shape, device, quick, print_plans);
    }
    if (differing > 0) {
      std::printf("%d results differed\n", differing);
      return 1;
    }
    std::printf("all checks passed: one result whatever the tiles, splits and rows\n");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 70;
  }
}
