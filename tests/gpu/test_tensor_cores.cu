// What the exactness of products on a device rests on, asked of its tensor cores: a result depends
// on its own row and column alone, wherever they lie in a tile, and products with zero add nothing.
// And questions whose answers decide how products may be computed: whether a warpgroup's wgmma
// gives the bits of a warp's mma, and whether it gives the same ones for 8, 64 and 128 rows at a
// time (they are printed, for either answer is right).
#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/warpgroup_ptx.cuh"

namespace paceline::kernels::cuda {
namespace {

constexpr int kSteps = 16;  // of 16 k: one chain of a product
constexpr int kDepth = 16 * kSteps;
constexpr int kFeatures = 64;   // rows of A: of four warps
constexpr int kMostRows = 192;  // columns of B

/// The fragment of A of a warp's 16 features: see mma_bf16_16816().
__device__ void load_a(const __nv_bfloat16* weight, int step, std::uint32_t (&a)[4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first = static_cast<int>(threadIdx.x / 32) * 16 + lane / 4;
  const int column = step * 16 + lane % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    a[i] = *reinterpret_cast<const std::uint32_t*>(weight + (first + i % 2 * 8) * kDepth + column +
                                                   i / 2 * 8);
  }
}

/// weight: [64][kDepth]; in: [kRows][kDepth]; out: [64][kRows]. One chain for each result.
template <int kRows>
__global__ void by_warps(const __nv_bfloat16* weight, const __nv_bfloat16* in, float* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first = static_cast<int>(threadIdx.x / 32) * 16;
  for (int tile = 0; tile < kRows / 8; ++tile) {
    float d[4] = {};
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t a[4];
      load_a(weight, step, a);
      std::uint32_t b[2];
      for (int i = 0; i < 2; ++i) {
        b[i] = *reinterpret_cast<const std::uint32_t*>(in + (tile * 8 + lane / 4) * kDepth +
                                                       step * 16 + lane % 4 * 2 + i * 8);
      }
      mma_bf16_16816(d, a, b);
    }
    for (int i = 0; i < 4; ++i) {
      out[(first + lane / 4 + i / 2 * 8) * kRows + tile * 8 + lane % 4 * 2 + i % 2] = d[i];
    }
  }
}

/// The same by one warpgroup, with rows as product_warpgroups.cuh has them: 128 bytes, or 4 steps,
/// at a time.
template <int kRows>
__global__ void by_warpgroup(const __nv_bfloat16* weight, const __nv_bfloat16* in, float* out) {
  std::byte* rows = dynamic_shared();  // [rows][8 pieces][16], pieces permuted
  const int thread = static_cast<int>(threadIdx.x);
  float d[kRows / 8][4] = {};
  for (int first = 0; first < kSteps; first += 4) {
    __syncthreads();
    for (int i = thread; i < kRows * 8; i += static_cast<int>(blockDim.x)) {
      const int row = i / 8;
      const int piece = i % 8;
      *reinterpret_cast<uint4*>(rows + row * 128 + (piece ^ (row % 8)) * 16) =
          *reinterpret_cast<const uint4*>(in + row * kDepth + first * 16 + piece * 8);
    }
    fence_shared_for_wgmma();
    __syncthreads();
    for (int step = 0; step < 4; ++step) {
      std::uint32_t a[4];
      load_a(weight, first + step, a);
      wgmma_begin();
      wgmma_bf16(d, a, rows, step, first + step > 0);
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_settle(d);
    }
  }
  const int lane = thread % 32;
  const int feature = thread / 32 * 16 + lane / 4;
#pragma unroll
  for (int tile = 0; tile < kRows / 8; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[(feature + i / 2 * 8) * kRows + tile * 8 + lane % 4 * 2 + i % 2] = d[tile][i];
    }
  }
}

using Values = std::vector<float>;

/// Random values that bf16 holds, of very different sizes.
Values random_values(std::mt19937& random, int count) {
  std::normal_distribution<float> normal;
  Values values(count);
  for (float& v : values) {
    v = __bfloat162float(
        __float2bfloat16(std::ldexp(normal(random), static_cast<int>(random() % 9) - 4)));
  }
  return values;
}

/// out[features][rows], by either kernel.
Values product(void (*kernel)(const __nv_bfloat16*, const __nv_bfloat16*, float*), int rows,
               const Values& weight, const Values& in) {
  const auto upload = [](const Values& values) {
    std::vector<__nv_bfloat16> bf16;
    for (const float v : values) bf16.push_back(__float2bfloat16(v));
    DeviceMemory memory(bf16.size() * 2);
    PACELINE_CUDA_CHECK(
        cudaMemcpy(memory.data(), bf16.data(), memory.size(), cudaMemcpyHostToDevice));
    return memory;
  };
  const DeviceMemory device_weight = upload(weight);
  const DeviceMemory device_in = upload(in);
  const DeviceMemory device_out(static_cast<std::size_t>(kFeatures) * rows * 4);
  PACELINE_CUDA_CHECK(cudaMemset(device_out.data(), 0xFF, device_out.size()));
  launch(kernel, dim3(1), dim3(128), kMostRows * 128, nullptr,
         reinterpret_cast<const __nv_bfloat16*>(device_weight.data()),
         reinterpret_cast<const __nv_bfloat16*>(device_in.data()),
         reinterpret_cast<float*>(device_out.data()));
  Values out(static_cast<std::size_t>(kFeatures) * rows);
  PACELINE_CUDA_CHECK(
      cudaMemcpy(out.data(), device_out.data(), device_out.size(), cudaMemcpyDeviceToHost));
  return out;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

class TensorCores : public testing::Test {
 protected:
  void SetUp() override {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9)
      GTEST_SKIP() << "this program is for a device of compute capability 9";
  }
  std::mt19937 random_{20261121};
};

// One feature, in every place of the tile among random others, and one row in all its columns.
TEST_F(TensorCores, PlaceAndNeighboursDoNotMatter) {
  for (int run = 0; run < 20; ++run) {
    const Values feature = random_values(random_, kDepth);
    const Values row = random_values(random_, kDepth);
    float first = 0;
    for (int place = 0; place < kFeatures; ++place) {
      Values weight = random_values(random_, kFeatures * kDepth);
      Values in;
      std::copy(feature.begin(), feature.end(), weight.begin() + place * kDepth);
      for (int r = 0; r < 8; ++r) in.insert(in.end(), row.begin(), row.end());
      const Values out = product(by_warps<8>, 8, weight, in);
      if (place == 0) first = out[0];
      for (int r = 0; r < 8; ++r) {
        const float value = out[place * 8 + r];
        ASSERT_TRUE(same_bits(value, first))
            << place << ", " << r << ": " << value << ", " << first;
      }
    }
  }
}

/// What is zero in a step that is to add nothing.
enum class Zeros { both, weights, inputs };

/// Steps of zeros before, between and after change nothing, whatever they are multiplied with: a
/// packed weight is filled up with zeros where its segment ends and the inputs' next one begins.
void check_zeros(std::mt19937& random, Zeros zeros) {
  for (int run = 0; run < 100; ++run) {
    const Values weight = random_values(random, kFeatures * kDepth);
    const Values in = random_values(random, 8 * kDepth);
    const int used = 1 + static_cast<int>(random() % kSteps);
    std::vector<int> at(kSteps);
    for (int s = 0; s < kSteps; ++s) at[s] = s;
    std::shuffle(at.begin(), at.end(), random);
    at.resize(used);
    std::sort(at.begin(), at.end());
    Values spread_weight(weight.size(), 0.0F);
    Values spread_in(in.size(), 0.0F);
    if (zeros == Zeros::weights) spread_in = random_values(random, 8 * kDepth);
    if (zeros == Zeros::inputs) spread_weight = random_values(random, kFeatures * kDepth);
    Values packed_weight(weight.size(), 0.0F);
    Values packed_in(in.size(), 0.0F);
    for (int s = 0; s < used; ++s) {
      for (int k = 0; k < 16; ++k) {
        for (int f = 0; f < kFeatures; ++f) {
          const float v = weight[f * kDepth + s * 16 + k];
          packed_weight[f * kDepth + s * 16 + k] = v;
          spread_weight[f * kDepth + at[s] * 16 + k] = v;
        }
        for (int r = 0; r < 8; ++r) {
          const float v = in[r * kDepth + s * 16 + k];
          packed_in[r * kDepth + s * 16 + k] = v;
          spread_in[r * kDepth + at[s] * 16 + k] = v;
        }
      }
    }
    for (const auto kernel : {by_warps<8>, by_warpgroup<8>}) {
      const Values packed = product(kernel, 8, packed_weight, packed_in);
      const Values spread = product(kernel, 8, spread_weight, spread_in);
      for (std::size_t i = 0; i < packed.size(); ++i)
        ASSERT_TRUE(same_bits(packed[i], spread[i])) << packed[i] << ", " << spread[i];
    }
  }
}
TEST_F(TensorCores, ZerosByZerosAddNothing) { check_zeros(random_, Zeros::both); }
TEST_F(TensorCores, ZeroWeightsByValuesAddNothing) { check_zeros(random_, Zeros::weights); }
TEST_F(TensorCores, WeightsByZeroInputsAddNothing) { check_zeros(random_, Zeros::inputs); }

template <int kRows>
void compare_instructions(std::mt19937& random) {
  std::int64_t different = 0;
  std::int64_t results = 0;
  for (int run = 0; run < 30; ++run) {
    const Values weight = random_values(random, kFeatures * kDepth);
    const Values in = random_values(random, kRows * kDepth);
    const Values warps = product(by_warps<kRows>, kRows, weight, in);
    const Values warpgroup = product(by_warpgroup<kRows>, kRows, weight, in);
    for (int f = 0; f < kFeatures; ++f) {
      for (int r = 0; r < kRows; ++r) {
        double exact = 0;
        double size = 0;
        for (int k = 0; k < kDepth; ++k) {
          const double term = static_cast<double>(weight[f * kDepth + k]) * in[r * kDepth + k];
          exact += term;
          size += std::fabs(term);
        }
        const float a = warps[f * kRows + r];
        const float b = warpgroup[f * kRows + r];
        ASSERT_NEAR(a, exact, 1e-5 * size);
        ASSERT_NEAR(b, exact, 1e-5 * size);
        different += same_bits(a, b) ? 0 : 1;
        ++results;
      }
    }
  }
  std::printf("wgmma m64n%dk16 and mma m16n8k16: %lld of %lld chains of %d differ in a bit\n",
              kRows, static_cast<long long>(different), static_cast<long long>(results), kDepth);
}
TEST_F(TensorCores, WarpgroupsOf8Rows) { compare_instructions<8>(random_); }
TEST_F(TensorCores, WarpgroupsOf32Rows) { compare_instructions<32>(random_); }
TEST_F(TensorCores, WarpgroupsOf64Rows) { compare_instructions<64>(random_); }
TEST_F(TensorCores, WarpgroupsOf128Rows) { compare_instructions<128>(random_); }
TEST_F(TensorCores, WarpgroupsOf192Rows) { compare_instructions<192>(random_); }

// The same rows 8, 64 and 128 at a time: where their bits agree, decoding may take the narrow
// instruction and prefill the wide ones.
TEST_F(TensorCores, WarpgroupsOfAnyRowsAmongThemselves) {
  std::int64_t different[2] = {};
  std::int64_t results = 0;
  for (int run = 0; run < 30; ++run) {
    const Values weight = random_values(random_, kFeatures * kDepth);
    const Values in = random_values(random_, 128 * kDepth);
    const auto first = [&in](int rows) { return Values(in.begin(), in.begin() + rows * kDepth); };
    const Values by_8 = product(by_warpgroup<8>, 8, weight, first(8));
    const Values by_64 = product(by_warpgroup<64>, 64, weight, first(64));
    const Values by_128 = product(by_warpgroup<128>, 128, weight, in);
    for (int f = 0; f < kFeatures; ++f) {
      for (int r = 0; r < 8; ++r) {
        different[0] += same_bits(by_8[f * 8 + r], by_64[f * 64 + r]) ? 0 : 1;
        different[1] += same_bits(by_8[f * 8 + r], by_128[f * 128 + r]) ? 0 : 1;
        ++results;
      }
    }
  }
  std::printf("wgmma m64n8k16: %lld of %lld chains differ from m64n64k16, %lld from m64n128k16\n",
              static_cast<long long>(different[0]), static_cast<long long>(results),
              static_cast<long long>(different[1]));
}

}  // namespace
}  // namespace paceline::kernels::cuda
