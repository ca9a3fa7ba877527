#include "kernels/cuda/tower.hpp"

#include <cuda_bf16.h>

#include <cmath>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/launch.hpp"

namespace paceline::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ void store(float* to, float x) { *to = x; }
__device__ __forceinline__ void store(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }

/// Normalises one row in each block. Thread t has elements t, t + kThreads, ...; it reads again
/// what it has written.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_layernorm_kernel(float* x, const float* delta, const float* weight, const float* bias,
                         float epsilon, int width, T* out) {
  auto* const sums = reinterpret_cast<float*>(dynamic_shared());
  const std::size_t row = static_cast<std::size_t>(blockIdx.x) * width;
  const int thread = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int i = thread; i < width; i += kThreads) {
    if (delta != nullptr) x[row + i] += delta[row + i];
    sum += x[row + i];
  }
  const float mean = __fdiv_rn(block_sum(sum, sums), static_cast<float>(width));
  float squares = 0;
  for (int i = thread; i < width; i += kThreads) {
    const float apart = x[row + i] - mean;
    squares = __fmaf_rn(apart, apart, squares);
  }
  __syncthreads();  // the memory of the sums is used again
  const float variance = __fdiv_rn(block_sum(squares, sums), static_cast<float>(width));
  const float scale = __fdiv_rn(1.0F, __fsqrt_rn(variance + epsilon));
  for (int i = thread; i < width; i += kThreads)
    store(out + row + i, __fmaf_rn((x[row + i] - mean) * scale, weight[i], bias[i]));
}

/// Computes one row in each block of the first dimension.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gelu_kernel(Gelu kind, const float* in, int width, T* out) {
  constexpr float kHalfRoot = 0.707106781F;  // 1 / sqrt(2)
  const int i = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= width) return;
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * width + i;
  const float x = in[at];
  store(out + at, kind == Gelu::quick ? __fdiv_rn(x, 1.0F + exponential(-1.702F * x))
                                      : 0.5F * x * (1.0F + erff(x * kHalfRoot)));
}

}  // namespace

void add_layernorm(float* x, const float* delta, const float* weight, const float* bias,
                   float epsilon, int rows, int width, DType dtype, std::byte* out,
                   cudaStream_t stream) {
  if (rows == 0) return;
  const auto start = [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    launch(add_layernorm_kernel<T>, static_cast<unsigned>(rows), kThreads, kWarp * sizeof(float),
           stream, x, delta, weight, bias, epsilon, width, typed);
  };
  if (dtype == DType::bf16) {
    start(reinterpret_cast<__nv_bfloat16*>(out));
  } else {
    start(reinterpret_cast<float*>(out));
  }
}

void gelu(Gelu kind, const float* in, int rows, int width, DType dtype, std::byte* out,
          cudaStream_t stream) {
  if (rows == 0) return;
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((width + kThreads - 1) / kThreads));
  const auto start = [&](auto* typed) {
    using T = std::remove_pointer_t<decltype(typed)>;
    launch(gelu_kernel<T>, grid, kThreads, 0, stream, kind, in, width, typed);
  };
  if (dtype == DType::bf16) {
    start(reinterpret_cast<__nv_bfloat16*>(out));
  } else {
    start(reinterpret_cast<float*>(out));
  }
}

}  // namespace paceline::kernels::cuda
