#include "kernels/cuda/elementwise.hpp"

#include <cuda_bf16.h>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/launch.hpp"

namespace paceline::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxThreads = 1024;

/// Returns how many blocks of kThreads a row needs, with four elements for each thread.
unsigned blocks_of(int width) {
  return static_cast<unsigned>((width + 4 * kThreads - 1) / (4 * kThreads));
}

/// Returns the first element of a thread. Thread t of a row's block y has elements [4 u, 4 u + 4)
/// with u = t + kThreads y.
__device__ __forceinline__ int first_element() {
  return 4 * static_cast<int>(threadIdx.x + blockIdx.y * blockDim.x);
}

template <class T, bool aligned>
__global__ void embed_kernel(const T* table, const EmbeddingRows range, const std::int32_t* tokens,
                             float* out) {
  const int i = first_element();
  const int width = range.width;
  if (i >= width) return;
  const int row = tokens[blockIdx.x] - range.first;
  float x[4] = {-0.0F, -0.0F, -0.0F, -0.0F};
  if (row >= 0 && row < range.count)
    load4<aligned>(table + static_cast<std::size_t>(row) * width + i, width - i, x);
  store4<aligned>(out + static_cast<std::size_t>(blockIdx.x) * width + i, width - i, x);
}

/// Normalises one row in each block. Thread t has elements [4 u, 4 u + 4) with u = t, t + threads,
/// ..., and sums them in this order before the tree over the block.
template <class T, int vectors, bool aligned>
__global__ void __launch_bounds__(kMaxThreads)
    add_rmsnorm_kernel(float* x, const float* delta, const float* weight, float epsilon, int width,
                       T* out) {
  auto* sums = reinterpret_cast<float*>(dynamic_shared());
  const std::size_t row = static_cast<std::size_t>(blockIdx.x) * width;
  const int step = 4 * static_cast<int>(blockDim.x);
  const int first = 4 * static_cast<int>(threadIdx.x);
  float values[vectors][4];
  float squares = 0;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    const int i = first + v * step;
    if (i >= width) break;
    load4<aligned>(x + row + i, width - i, values[v]);
    if (delta != nullptr) {
      float more[4];
      load4<aligned>(delta + row + i, width - i, more);
#pragma unroll
      for (int j = 0; j < 4; ++j) values[v][j] += more[j];
      store4<aligned>(x + row + i, width - i, values[v]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) squares = __fmaf_rn(values[v][j], values[v][j], squares);
  }
  const float mean = __fdiv_rn(block_sum(squares, sums), static_cast<float>(width));
  const float scale = __fdiv_rn(1.0F, __fsqrt_rn(mean + epsilon));
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    const int i = first + v * step;
    if (i >= width) break;
    float factor[4];
    load4<aligned>(weight + i, width - i, factor);
#pragma unroll
    for (int j = 0; j < 4; ++j) factor[j] = values[v][j] * scale * factor[j];
    store4<aligned>(out + row + i, width - i, factor);
  }
}

/// Returns the number of threads for a row, which depends only on its width.
int norm_threads(int width) { return width <= 1024 ? 256 : width <= 2048 ? 512 : kMaxThreads; }

template <class T, int vectors>
void launch_add_rmsnorm(float* x, const float* delta, const float* weight, float epsilon, int rows,
                        int width, T* out, cudaStream_t stream) {
  const bool aligned = fours_aligned(width, x, weight, out) && fours_aligned(width, delta);
  launch(aligned ? add_rmsnorm_kernel<T, vectors, true> : add_rmsnorm_kernel<T, vectors, false>,
         static_cast<unsigned>(rows), static_cast<unsigned>(norm_threads(width)),
         kWarp * sizeof(float), stream, x, delta, weight, epsilon, width, out);
}

template <class T>
void add_rmsnorm_of(float* x, const float* delta, const float* weight, float epsilon, int rows,
                    int width, T* out, cudaStream_t stream) {
  const int step = 4 * norm_threads(width);
  const auto start = width <= step       ? launch_add_rmsnorm<T, 1>
                     : width <= 2 * step ? launch_add_rmsnorm<T, 2>
                     : width <= 4 * step ? launch_add_rmsnorm<T, 4>
                                         : launch_add_rmsnorm<T, 8>;
  start(x, delta, weight, epsilon, rows, width, out, stream);
}

template <bool aligned>
__global__ void add_bias_kernel(float* x, const float* bias, int width) {
  const int i = first_element();
  if (i >= width) return;
  float* at = x + static_cast<std::size_t>(blockIdx.x) * width + i;
  float values[4];
  float more[4];
  load4<aligned>(at, width - i, values);
  load4<aligned>(bias + i, width - i, more);
#pragma unroll
  for (int j = 0; j < 4; ++j) values[j] += more[j];
  store4<aligned>(at, width - i, values);
}

template <class T, bool aligned>
__global__ void swiglu_kernel(const float* gate_up, int width, T* out) {
  const int i = first_element();
  if (i >= width) return;
  const float* row = gate_up + static_cast<std::size_t>(blockIdx.x) * 2 * width + i;
  float gate[4];
  float up[4];
  load4<aligned>(row, width - i, gate);
  load4<aligned>(row + width, width - i, up);
#pragma unroll
  for (int j = 0; j < 4; ++j) up[j] = swiglu_value(gate[j], up[j]);
  store4<aligned>(out + static_cast<std::size_t>(blockIdx.x) * width + i, width - i, up);
}

template <class T>
void swiglu_of(const float* gate_up, int rows, int width, T* out, cudaStream_t stream) {
  launch(fours_aligned(width, gate_up, out) ? swiglu_kernel<T, true> : swiglu_kernel<T, false>,
         dim3(static_cast<unsigned>(rows), blocks_of(width)), kThreads, 0, stream, gate_up, width,
         out);
}

template <class T, bool aligned>
__global__ void store_columns_kernel(const float* in, int width, T* out, int out_width) {
  const int i = first_element();
  if (i >= width) return;
  float x[4];
  load4<aligned>(in + static_cast<std::size_t>(blockIdx.x) * width + i, width - i, x);
  store4<aligned>(out + static_cast<std::size_t>(blockIdx.x) * out_width + i, width - i, x);
}

/// Stores columns. `out` begins at the first column.
template <class T>
void store_columns_of(const float* in, int rows, int width, T* out, int out_width,
                      cudaStream_t stream) {
  const bool aligned = fours_aligned(width, in) && fours_aligned(out_width, out);
  launch(aligned ? store_columns_kernel<T, true> : store_columns_kernel<T, false>,
         dim3(static_cast<unsigned>(rows), blocks_of(width)), kThreads, 0, stream, in, width, out,
         out_width);
}

__global__ void scatter_columns_kernel(const float* in, int width, const std::int32_t* columns,
                                       float* out, int out_width) {
  const int i = static_cast<int>(threadIdx.x + blockIdx.y * blockDim.x);
  if (i >= width) return;
  out[static_cast<std::size_t>(blockIdx.x) * out_width + columns[i]] =
      in[static_cast<std::size_t>(blockIdx.x) * width + i];
}

/// Gathers rows of `count` elements of type T.
template <class T>
__global__ void gather_rows_kernel(const T* in, const std::int32_t* index, std::size_t count,
                                   T* out) {
  const std::int32_t from = index[blockIdx.x];
  const std::size_t i = threadIdx.x + static_cast<std::size_t>(blockIdx.y) * blockDim.x;
  if (from < 0 || i >= count) return;
  out[blockIdx.x * count + i] = in[from * count + i];
}

template <class T>
void gather_rows_of(const std::byte* in, const std::int32_t* index, int count, std::size_t bytes,
                    std::byte* out, cudaStream_t stream) {
  const std::size_t words = bytes / sizeof(T);
  launch(
      gather_rows_kernel<T>,
      dim3(static_cast<unsigned>(count), static_cast<unsigned>((words + kThreads - 1) / kThreads)),
      kThreads, 0, stream, reinterpret_cast<const T*>(in), index, words, reinterpret_cast<T*>(out));
}

}  // namespace

void embed(const std::byte* table, DType dtype, const EmbeddingRows& range,
           const std::int32_t* tokens, int rows, float* out, cudaStream_t stream) {
  if (rows == 0) return;
  const auto start = [&](const auto* typed) {
    using T = std::remove_cvref_t<decltype(*typed)>;
    launch(fours_aligned(range.width, typed, out) ? embed_kernel<T, true> : embed_kernel<T, false>,
           dim3(static_cast<unsigned>(rows), blocks_of(range.width)), kThreads, 0, stream, typed,
           range, tokens, out);
  };
  if (dtype == DType::bf16) {
    start(reinterpret_cast<const __nv_bfloat16*>(table));
  } else {
    start(reinterpret_cast<const float*>(table));
  }
}

void add_rmsnorm(float* x, const float* delta, const float* weight, float epsilon, int rows,
                 int width, DType dtype, std::byte* out, cudaStream_t stream) {
  if (width > kMaxNormWidth) {
    throw Error(ExitCode::internal, "add_rmsnorm: rows of " + std::to_string(width) +
                                        " elements, at most " + std::to_string(kMaxNormWidth));
  }
  if (rows == 0) return;
  if (dtype == DType::bf16) {
    add_rmsnorm_of(x, delta, weight, epsilon, rows, width, reinterpret_cast<__nv_bfloat16*>(out),
                   stream);
  } else {
    add_rmsnorm_of(x, delta, weight, epsilon, rows, width, reinterpret_cast<float*>(out), stream);
  }
}

void add_bias(float* x, const float* bias, int rows, int width, cudaStream_t stream) {
  if (rows == 0) return;
  launch(fours_aligned(width, x, bias) ? add_bias_kernel<true> : add_bias_kernel<false>,
         dim3(static_cast<unsigned>(rows), blocks_of(width)), kThreads, 0, stream, x, bias, width);
}

void swiglu(const float* gate_up, int rows, int width, DType dtype, std::byte* out,
            cudaStream_t stream) {
  if (rows == 0) return;
  if (dtype == DType::bf16) {
    swiglu_of(gate_up, rows, width, reinterpret_cast<__nv_bfloat16*>(out), stream);
  } else {
    swiglu_of(gate_up, rows, width, reinterpret_cast<float*>(out), stream);
  }
}

void store_columns(const float* in, int rows, int width, DType dtype, std::byte* out, int out_width,
                   int first_column, cudaStream_t stream) {
  if (rows == 0) return;
  if (dtype == DType::bf16) {
    store_columns_of(in, rows, width, reinterpret_cast<__nv_bfloat16*>(out) + first_column,
                     out_width, stream);
  } else {
    store_columns_of(in, rows, width, reinterpret_cast<float*>(out) + first_column, out_width,
                     stream);
  }
}

void scatter_columns(const float* in, int rows, int width, const std::int32_t* columns, float* out,
                     int out_width, cudaStream_t stream) {
  if (rows == 0) return;
  launch(
      scatter_columns_kernel,
      dim3(static_cast<unsigned>(rows), static_cast<unsigned>((width + kThreads - 1) / kThreads)),
      kThreads, 0, stream, in, width, columns, out, out_width);
}

void gather_rows(const std::byte* in, const std::int32_t* index, int count, std::size_t bytes,
                 std::byte* out, cudaStream_t stream) {
  if (count == 0 || bytes == 0) return;
  const std::uintptr_t together =
      reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out) | bytes;
  if (together % 16 == 0) {
    gather_rows_of<uint4>(in, index, count, bytes, out, stream);
  } else if (together % 4 == 0) {
    gather_rows_of<unsigned>(in, index, count, bytes, out, stream);
  } else {
    gather_rows_of<unsigned char>(in, index, count, bytes, out, stream);
  }
}

}  // namespace paceline::kernels::cuda
