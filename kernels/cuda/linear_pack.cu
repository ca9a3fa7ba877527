// Weights into the layout that the matrix products read.
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

/// A thread moves a pair of elements to the register of the lane that multiplies it.
template <class Stored>
__global__ void __launch_bounds__(256) pack_bf16(const PackArgs args) {
  const int element = 2 * static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (element >= args.k) return;
  const int segment = element / args.segment_length;
  const int step = (element - segment * args.segment_length) / kStep;
  const int within = (element - segment * args.segment_length) % kStep;
  for (int r = static_cast<int>(blockIdx.y); r < args.rows; r += static_cast<int>(gridDim.y)) {
    const int feature = feature_of(args.first_row + r, args.n, args.gated);
    const auto* from = reinterpret_cast<const Stored*>(args.source) +
                       static_cast<std::size_t>(r) * args.k + element;
    const int lane = feature % 16 / 2 * 4 + within % 8 / 2;
    const int reg = feature % 2 + within / 8 * 2;
    const std::size_t fragment =
        (static_cast<std::size_t>(feature / 16) * args.segments + segment) * args.segment_steps +
        step;
    *reinterpret_cast<unsigned*>(args.weight + fragment * 512 + lane * 16 + reg * 4) =
        bits_of(from);
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
    reinterpret_cast<float*>(
        args.weight)[(static_cast<std::size_t>(feature / 32) * args.k + element) * 32 +
                     feature % 32] = value_of(*from);
  }
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

}  // namespace paceline::kernels::cuda
