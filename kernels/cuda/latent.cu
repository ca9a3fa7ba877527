// Latent attention: a block of threads for each row and head, which walks the positions in tiles of
// kAttentionTile with one softmax state. For scores, every warp takes positions of a tile in turn;
// for values, every thread takes elements. The heads of a row read the same vectors, which are in
// the second-level cache after the first read.
#include "kernels/cuda/latent.hpp"

#include <cuda_bf16.h>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/kv_layout.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/limits.hpp"

namespace paceline::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
/// Number of elements of the values that a thread has.
constexpr int kOfThread = kMaxLatentValues / kThreads;

__device__ __forceinline__ void store(float* to, float x) { *to = x; }
__device__ __forceinline__ void store(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }
__device__ __forceinline__ float value(float x) { return x; }
__device__ __forceinline__ float value(__nv_bfloat16 x) { return __bfloat162float(x); }

struct StoreArguments {
  LatentParams params;
  const float* cos_sin;  ///< [positions][rope]
  KvStrides kv;
  std::int64_t layer_element;  ///< first element of the layer in a block
  const std::int32_t* positions;
  const std::int64_t* slots;
  int rows;
  const float* q;
  const float* latent;
};

/// Rotates pairs of neighbours, which are stored apart from each other. Lane l has pairs l, l + 32
/// and so on.
template <class T>
__device__ __forceinline__ void rotate(const float* in, const float* cos_sin, int size, T* out) {
  const int half = size / 2;
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < half; i += kWarp) {
    const float a = in[2 * i];
    const float b = in[2 * i + 1];
    const float c = cos_sin[i];
    const float s = cos_sin[half + i];
    store(out + i, __fmaf_rn(-b, s, a * c));
    store(out + half + i, __fmaf_rn(a, s, b * c));
  }
}

/// Each warp handles one head (x: row, y: heads by kWarps). The latent vector follows the heads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    store_kernel(StoreArguments args, T* cache, T* nope_out, T* q_out) {
  const LatentParams& p = args.params;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int head = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int row = static_cast<int>(blockIdx.x);
  const std::int32_t position = args.positions[row];
  if (head > p.heads || position < 0) return;
  const float* cos_sin = args.cos_sin + static_cast<std::int64_t>(position) * p.rope;
  const int width = p.rank + p.rope;
  if (head < p.heads) {
    const float* in =
        args.q + (static_cast<std::int64_t>(row) * p.heads + head) * (p.nope + p.rope);
    T* nope = nope_out + (static_cast<std::int64_t>(head) * args.rows + row) * p.nope;
    for (int i = lane; i < p.nope; i += kWarp) store(nope + i, in[i]);
    rotate(in + p.nope, cos_sin, p.rope,
           q_out + (static_cast<std::int64_t>(row) * p.heads + head) * width + p.rank);
    return;
  }
  const float* in = args.latent + static_cast<std::int64_t>(row) * width;
  T* vector = cache + slot_element(args.kv, args.slots[row]) + args.layer_element;
  float squares = 0;
  for (int i = lane; i < p.rank; i += kWarp) squares = __fmaf_rn(in[i], in[i], squares);
  const float mean = __fdiv_rn(warp_sum(squares), static_cast<float>(p.rank));
  const float scale = __fdiv_rn(1.0F, __fsqrt_rn(mean + p.norm_epsilon));
  for (int i = lane; i < p.rank; i += kWarp) store(vector + i, in[i] * scale * p.norm[i]);
  rotate(in + p.rank, cos_sin, p.rope, vector + p.rank);
}

struct AttendArguments {
  int heads, rank, width;
  float scale;
  KvStrides kv;
  std::int64_t layer_element;
  const std::int32_t* words;
  int rows;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    attend_kernel(AttendArguments args, const T* cache, const T* q, T* out) {
  auto* const query = reinterpret_cast<float*>(dynamic_shared());  // [width]
  float* const scores = query + args.width;                        // [kAttentionTile], then weights
  auto** const vectors = reinterpret_cast<const T**>(scores + kAttentionTile + args.width % 2);
  const int t = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const LatentRowWords seen = reinterpret_cast<const LatentRowWords*>(args.words)[row];
  if (seen.positions == 0) return;
  const T* mine = q + (static_cast<std::int64_t>(row) * args.heads + head) * args.width;
  for (int i = t; i < args.width; i += kThreads) query[i] = value(mine[i]);

  float sums[kOfThread] = {};
  float largest = -INFINITY;
  float total = 0;
  for (int first = 0; first < seen.positions; first += kAttentionTile) {
    const int count = min(kAttentionTile, seen.positions - first);
    if (t < count) {
      const int position = first + t;
      const int place =
          position < seen.base ? position : args.words[seen.path + position - seen.base];
      const std::int64_t block = args.words[seen.blocks + place / args.kv.positions];
      vectors[t] = cache + args.layer_element +
                   slot_element(args.kv, block * args.kv.positions + place % args.kv.positions);
    }
    __syncthreads();
    for (int p = t / kWarp; p < count; p += kWarps) {
      const T* vector = vectors[p];
      float sum = 0;
      for (int i = t % kWarp; i < args.width; i += kWarp)
        sum = __fmaf_rn(query[i], value(vector[i]), sum);
      sum = warp_sum(sum);
      if (t % kWarp == 0) scores[p] = sum * args.scale;
    }
    __syncthreads();
    float top = largest;
    for (int p = 0; p < count; ++p) top = fmaxf(top, scores[p]);
    __syncthreads();
    if (t < count) scores[t] = exponential(scores[t] - top);
    __syncthreads();
    const float keep = first == 0 ? 0.0F : exponential(largest - top);
    largest = top;
    float added = 0;
    for (int p = 0; p < count; ++p) added += scores[p];
    total = __fmaf_rn(total, keep, added);
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int element = i * kThreads + t;
      if (element >= args.rank) continue;
      float sum = sums[i] * keep;
      for (int p = 0; p < count; ++p) sum = __fmaf_rn(scores[p], value(vectors[p][element]), sum);
      sums[i] = sum;
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const int element = i * kThreads + t;
    if (element >= args.rank) continue;
    store(out + (static_cast<std::int64_t>(head) * args.rows + row) * args.rank + element,
          __fdiv_rn(sums[i], total));
  }
}

/// Calls f with a null pointer to the device's type for `dtype`.
template <class F>
void with_type(DType dtype, const F& f) {
  if (dtype == DType::bf16) {
    f(static_cast<__nv_bfloat16*>(nullptr));
  } else {
    f(static_cast<float*>(nullptr));
  }
}

}  // namespace

void latent_rope_and_store(const LatentParams& params, const RopeTable& rope, const KvShape& kv,
                           int layer, std::byte* cache, const std::int32_t* positions,
                           const std::int64_t* slots, int rows, const float* q, const float* latent,
                           std::byte* nope_out, std::byte* q_out, cudaStream_t stream) {
  if (rows == 0) return;
  StoreArguments args{params, rope.cos_sin, strides_of(kv), 0, positions, slots, rows, q, latent};
  args.layer_element = layer * args.kv.layer;
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((params.heads + 1 + kWarps - 1) / kWarps));
  with_type(kv.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    launch(store_kernel<T>, grid, dim3(kThreads), 0, stream, args, reinterpret_cast<T*>(cache),
           reinterpret_cast<T*>(nope_out), reinterpret_cast<T*>(q_out));
  });
}

void latent_attention(const LatentParams& params, const KvShape& kv, int layer,
                      const std::byte* cache, const std::int32_t* words, int rows,
                      const std::byte* q, std::byte* out, cudaStream_t stream) {
  if (rows == 0) return;
  AttendArguments args{params.heads,   params.rank, params.width(), params.scale,
                       strides_of(kv), 0,           words,          rows};
  args.layer_element = layer * args.kv.layer;
  const std::size_t shared = sizeof(float) * (args.width + args.width % 2 + kAttentionTile) +
                             sizeof(void*) * kAttentionTile;
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(params.heads));
  with_type(kv.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    launch(attend_kernel<T>, grid, dim3(kThreads), shared, stream, args,
           reinterpret_cast<const T*>(cache), reinterpret_cast<const T*>(q),
           reinterpret_cast<T*>(out));
  });
}

}  // namespace paceline::kernels::cuda
