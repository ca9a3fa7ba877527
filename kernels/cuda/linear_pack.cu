// Packs weights into the layout of the matrix products, and unpacks rows.
#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/linear.hpp"

namespace paceline::kernels::cuda {
namespace {

struct PackArgs {
  std::byte* weight;        ///< see LinearLayout
  const std::byte* source;  ///< [rows, k]
  int first_row, rows, n, k;
  bool gated;
  int segments, segment_length, segment_steps;
};

__device__ unsigned bits_of(const float* x) {
  const unsigned lower = __bfloat16_as_ushort(__float2bfloat16_rn(x[0]));
  return lower | static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(x[1]))) << 16;
}
__device__ unsigned bits_of(const __nv_bfloat16* x) {
  return *reinterpret_cast<const unsigned*>(x);
}

/// Returns the byte offset, in a bf16 layout, of the register that has elements [element, element +
/// 2) of a feature. Registers are in the order of the lanes that multiply them.
__device__ std::size_t place_of_pair(int feature, int element, int segments, int segment_length,
                                     int segment_steps) {
  const int segment = element / segment_length;
  const int step = (element - segment * segment_length) / kStep;
  const int within = (element - segment * segment_length) % kStep;
  const int lane = feature % 16 / 2 * 4 + within % 8 / 2;
  const int reg = feature % 2 + within / 8 * 2;
  const std::size_t fragment =
      (static_cast<std::size_t>(feature / 16) * segments + segment) * segment_steps + step;
  return fragment * 512 + lane * 16 + reg * 4;
}

/// Returns the index of an element in an fp32 layout.
__device__ std::size_t place_of_element(int feature, int element, int k) {
  return (static_cast<std::size_t>(feature / 32) * k + element) * 32 + feature % 32;
}

/// Packs one pair of elements in each thread.
template <class Stored>
__global__ void __launch_bounds__(256) pack_bf16(const PackArgs args) {
  const int element = 2 * static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (element >= args.k) return;
  for (int r = static_cast<int>(blockIdx.y); r < args.rows; r += static_cast<int>(gridDim.y)) {
    const int feature = feature_of(args.first_row + r, args.n, args.gated);
    const auto* from = reinterpret_cast<const Stored*>(args.source) +
                       static_cast<std::size_t>(r) * args.k + element;
    *reinterpret_cast<unsigned*>(args.weight + place_of_pair(feature, element, args.segments,
                                                             args.segment_length,
                                                             args.segment_steps)) = bits_of(from);
  }
}

__device__ float value_of(float x) { return x; }
__device__ float value_of(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class Stored>
__global__ void __launch_bounds__(256) pack_f32(const PackArgs args) {
  const int element = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (element >= args.k) return;
  for (int r = static_cast<int>(blockIdx.y); r < args.rows; r += static_cast<int>(gridDim.y)) {
    const int feature = feature_of(args.first_row + r, args.n, args.gated);
    const auto* from = reinterpret_cast<const Stored*>(args.source) +
                       static_cast<std::size_t>(r) * args.k + element;
    reinterpret_cast<float*>(args.weight)[place_of_element(feature, element, args.k)] =
        value_of(*from);
  }
}

/// Unpacks row x by the blocks of column x. A thread has a pair of elements, since k is even.
template <bool bf16>
__global__ void __launch_bounds__(256)
    unpack_kernel(const std::byte* weight, int n, int k, int steps, int first,
                  const std::int32_t* tokens, float* out) {
  const int element = 2 * static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (element >= k) return;
  const int row = tokens[blockIdx.x] - first;
  float x[2] = {-0.0F, -0.0F};
  if (row >= 0 && row < n) {
    if constexpr (bf16) {
      const unsigned pair =
          *reinterpret_cast<const unsigned*>(weight + place_of_pair(row, element, 1, k, steps));
      x[0] = __uint_as_float(pair << 16);
      x[1] = __uint_as_float(pair & 0xFFFF0000U);
    } else {
      const auto* values = reinterpret_cast<const float*>(weight);
      x[0] = values[place_of_element(row, element, k)];
      x[1] = values[place_of_element(row, element + 1, k)];
    }
  }
  *reinterpret_cast<float2*>(out + static_cast<std::size_t>(blockIdx.x) * k + element) =
      make_float2(x[0], x[1]);
}

}  // namespace

void pack_rows(const LinearLayout& layout, std::byte* weight, int first_row, int rows,
               const std::byte* source, DType stored, cudaStream_t stream) {
  if (rows == 0) return;
  const PackArgs args{weight,
                      source,
                      first_row,
                      rows,
                      layout.n,
                      layout.k,
                      layout.gated,
                      layout.segments,
                      layout.segment_length(),
                      layout.segment_steps()};
  constexpr int kThreads = 256;
  constexpr int kMostGridRows = 65535;
  const bool bf16 = layout.dtype == DType::bf16;
  const int across = bf16 ? layout.k / 2 : layout.k;
  const auto kernel = bf16 ? stored == DType::bf16 ? &pack_bf16<__nv_bfloat16> : &pack_bf16<float>
                      : stored == DType::bf16 ? &pack_f32<__nv_bfloat16>
                                              : &pack_f32<float>;
  launch(kernel, dim3((across + kThreads - 1) / kThreads, std::min(rows, kMostGridRows)),
         dim3(kThreads), 0, stream, args);
}

void unpack_rows(const LinearLayout& layout, const std::byte* weight, int first,
                 const std::int32_t* tokens, int rows, float* out, cudaStream_t stream) {
  if (rows == 0) return;
  constexpr int kThreads = 256;
  const int across = (layout.k / 2 + kThreads - 1) / kThreads;
  launch(layout.dtype == DType::bf16 ? &unpack_kernel<true> : &unpack_kernel<false>,
         dim3(static_cast<unsigned>(rows), static_cast<unsigned>(across)), dim3(kThreads), 0,
         stream, weight, layout.n, layout.k, layout.segment_steps(), first, tokens, out);
}

}  // namespace paceline::kernels::cuda
