// Fragments of mma and ldmatrix, against a plain product of matrices.
#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <random>

#include "host_test_util.hpp"
#include "kernels/cuda/launch.hpp"

namespace paceline::cuda_host {
namespace {

using kernels::cuda::dynamic_shared;
using kernels::cuda::launch;
using kernels::cuda::ldmatrix_x2;
using kernels::cuda::ldmatrix_x2_trans;
using kernels::cuda::ldmatrix_x4;
using kernels::cuda::ldmatrix_x4_trans;
using kernels::cuda::mma_bf16_16816;

/// Rows in shared memory: 16 elements and 8 of padding.
constexpr int kPitch = 24;

std::uint32_t pair(const __nv_bfloat16* low, const __nv_bfloat16* high) {
  return __bfloat16_as_ushort(*low) | static_cast<std::uint32_t>(__bfloat16_as_ushort(*high)) << 16;
}

/// d = c + a * b. a: [16][16]; b: [n = 8][k = 16], or [k = 16][8] where transposed; c, d: [16][8].
/// from_memory: fragments are read element by element, as PTX describes them.
__global__ void multiply(const __nv_bfloat16* a, const __nv_bfloat16* b, const float* c, float* d,
                         bool transposed, bool from_memory) {
  const int lane = static_cast<int>(threadIdx.x);
  const int g = lane / 4;
  const int t = lane % 4;
  auto* shared_a = reinterpret_cast<__nv_bfloat16*>(dynamic_shared());
  auto* shared_b = shared_a + 16 * kPitch;
  const int b_columns = transposed ? 8 : 16;
  for (int i = lane; i < 256; i += 32) shared_a[i / 16 * kPitch + i % 16] = a[i];
  for (int i = lane; i < 128; i += 32) shared_b[i / b_columns * kPitch + i % b_columns] = b[i];
  __syncwarp();
  std::uint32_t fragment_a[4];
  std::uint32_t fragment_b[2];
  if (from_memory) {
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat16* at = a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
      fragment_a[i] = pair(at, at + 1);
    }
    for (int i = 0; i < 2; ++i) {
      const int k = 2 * t + i * 8;
      fragment_b[i] = transposed ? pair(b + k * 8 + g, b + (k + 1) * 8 + g)
                                 : pair(b + g * 16 + k, b + g * 16 + k + 1);
    }
  } else {
    ldmatrix_x4(fragment_a, shared_a + lane % 16 * kPitch + lane / 16 * 8);
    if (transposed) {
      ldmatrix_x2_trans(fragment_b, shared_b + lane % 16 * kPitch);
    } else {
      ldmatrix_x2(fragment_b, shared_b + lane % 8 * kPitch + lane / 8 % 2 * 8);
    }
  }
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  mma_bf16_16816(sums, fragment_a, fragment_b);
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

TEST(CudaHostPtxTest, MmaIsAProductOfMatrices) {
  const TestStream stream;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const bool transposed : {false, true}) {
    for (const bool from_memory : {false, true}) {
      std::vector<__nv_bfloat16> a(256);
      std::vector<__nv_bfloat16> b(128);
      std::vector<float> c(128);
      for (auto& x : a) x = __float2bfloat16_rn(normal(random));
      for (auto& x : b) x = __float2bfloat16_rn(normal(random));
      for (auto& x : c) x = normal(random);
      const DeviceArray<__nv_bfloat16> device_a(a);
      const DeviceArray<__nv_bfloat16> device_b(b);
      const DeviceArray<float> device_c(c);
      DeviceArray<float> d(128);
      launch(multiply, 1, 32, 4096, stream, device_a.data(), device_b.data(), device_c.data(),
             d.data(), transposed, from_memory);
      const std::vector<float> got = d.host();
      for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 8; ++j) {
          double expected = c[i * 8 + j];
          for (int k = 0; k < 16; ++k) {
            expected += static_cast<double>(__bfloat162float(a[i * 16 + k])) *
                        __bfloat162float(b[transposed ? k * 8 + j : j * 16 + k]);
          }
          ASSERT_EQ(got[i * 8 + j], static_cast<float>(expected)) << i << ", " << j;
        }
      }
    }
  }
}

/// out: [lane][4] of x4_trans over four matrices of distinct numbers, one below the other.
__global__ void load_transposed(const std::uint16_t* in, std::uint32_t* out) {
  auto* shared = reinterpret_cast<std::uint16_t*>(dynamic_shared());
  for (unsigned i = threadIdx.x; i < 256; i += 32) shared[i] = in[i];
  __syncwarp();
  std::uint32_t registers[4];
  ldmatrix_x4_trans(registers, shared + 8 * threadIdx.x);
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = registers[i];
}

TEST(CudaHostPtxTest, TransposedLoads) {
  const TestStream stream;
  std::vector<std::uint16_t> in(256);
  for (int i = 0; i < 256; ++i) in[i] = static_cast<std::uint16_t>(i);
  const DeviceArray<std::uint16_t> from(in);
  DeviceArray<std::uint32_t> out(128);
  launch(load_transposed, 1, 32, 512, stream, from.data(), out.data());
  const std::vector<std::uint32_t> got = out.host();
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned m = 0; m < 4; ++m) {
      const unsigned low = 64 * m + lane % 4 * 2 * 8 + lane / 4;
      EXPECT_EQ(got[4 * lane + m], low | (low + 8) << 16);
    }
  }
}

__global__ void load_misaligned() {
  std::uint32_t registers[2];
  ldmatrix_x2(registers, dynamic_shared() + 8);
}

TEST(CudaHostPtxTest, MisalignedRowsAreCaught) {
  const TestStream stream;
  launch(load_misaligned, 1, 32, 512, stream);
  EXPECT_THROW(stream.synchronize(), KernelFault);
}

TEST(CudaHostPtxTest, Bf16RoundsToNearestEven) {
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(1.0F)), 0x3F80);
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(__uint_as_float(0x3F808000U))), 0x3F80);
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(__uint_as_float(0x3F818000U))), 0x3F82);
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(__uint_as_float(0x3F808001U))), 0x3F81);
  EXPECT_EQ(__bfloat162float(__floats2bfloat162_rn(2.0F, 3.0F).y), 3.0F);
}

}  // namespace
}  // namespace paceline::cuda_host
