#include "kernels/cuda/rope.hpp"

#include <cuda_bf16.h>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/kv_layout.cuh"
#include "kernels/cuda/launch.hpp"

namespace paceline::kernels::cuda {
namespace {

constexpr int kWarps = 4;  ///< warps of a block; each has one head

struct RopeArguments {
  const float* cos_sin;  ///< [positions][head_dim]
  const float* q_norm;   ///< [head_dim] or null
  const float* k_norm;
  float epsilon;
  int heads;
  int kv_heads;
  int head_dim;
  KvStrides kv;
  std::int64_t layer_element;  ///< first element of the layer in a block
  const std::int32_t* positions;
  const RotaryPosition* rotary;  ///< null: `positions`
  int row_pairs;                 ///< first pair that is rotated by RotaryPosition::row
  int column_pairs;              ///< first pair that is rotated by RotaryPosition::column
  const std::int64_t* slots;
  const float* qkv;
};

__device__ __forceinline__ void store(float* to, float x) { *to = x; }
__device__ __forceinline__ void store(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }
__device__ __forceinline__ void store2(float* to, float x, float y) {
  *reinterpret_cast<float2*>(to) = make_float2(x, y);
}
__device__ __forceinline__ void store2(__nv_bfloat16* to, float x, float y) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(x, y);
}

/// Loads two neighbouring elements, or one if only one is left (the other is then 0). `even`: rows
/// have an even number of elements, so two exist and are aligned.
template <bool even>
__device__ __forceinline__ float2 load_two(const float* from, int left) {
  if constexpr (even) return *reinterpret_cast<const float2*>(from);
  return make_float2(from[0], left > 1 ? from[1] : 0.0F);
}
template <bool even, class T>
__device__ __forceinline__ void store_two(T* to, int left, float2 x) {
  if constexpr (even) {
    store2(to, x.x, x.y);
  } else {
    store(to, x.x);
    if (left > 1) store(to + 1, x.y);
  }
}

/// cos and sin of a row: a row of the table, or pieces of three.
struct Turn {
  const float* of_frame;  ///< [head_dim] row of the table; the whole row's if there are no pieces
  const float* of_row;    ///< null: no pieces
  const float* of_column;
  int row_pairs;
  int column_pairs;

  /// Element i of the composed row, which belongs to `pair`.
  [[nodiscard]] __device__ __forceinline__ float piece(int i, int pair) const {
    return (pair < row_pairs ? of_frame : pair < column_pairs ? of_row : of_column)[i];
  }
  /// Elements at + pair and the next one.
  template <bool even>
  [[nodiscard]] __device__ __forceinline__ float2 load(int at, int pair, int left) const {
    if (of_row == nullptr) return load_two<even>(of_frame + at + pair, left);
    return make_float2(piece(at + pair, pair), left > 1 ? piece(at + pair + 1, pair + 1) : 0.0F);
  }
};

/// Rotates a head with one warp. Lane l has elements 2 l and 2 l + 1 of both halves, and the
/// elements at steps of 64 after these.
template <bool even, class T>
__device__ __forceinline__ void rotate(const float* in, const float* weight, float epsilon,
                                       const Turn& turn, int head_dim, T* out) {
  const int half = head_dim / 2;
  const int first = 2 * (static_cast<int>(threadIdx.x) % kWarp);
  float scale = 1;
  if (weight != nullptr) {
    float squares = 0;
    for (int i = first; i < half; i += 2 * kWarp) {
      const float2 a = load_two<even>(in + i, half - i);
      const float2 b = load_two<even>(in + half + i, half - i);
      squares = __fmaf_rn(a.x, a.x, squares);
      squares = __fmaf_rn(a.y, a.y, squares);
      squares = __fmaf_rn(b.x, b.x, squares);
      squares = __fmaf_rn(b.y, b.y, squares);
    }
    const float mean = __fdiv_rn(warp_sum(squares), static_cast<float>(head_dim));
    scale = __fdiv_rn(1.0F, __fsqrt_rn(mean + epsilon));
  }
  for (int i = first; i < half; i += 2 * kWarp) {
    float2 a = load_two<even>(in + i, half - i);
    float2 b = load_two<even>(in + half + i, half - i);
    if (weight != nullptr) {
      const float2 low = load_two<even>(weight + i, half - i);
      const float2 high = load_two<even>(weight + half + i, half - i);
      a = make_float2(a.x * scale * low.x, a.y * scale * low.y);
      b = make_float2(b.x * scale * high.x, b.y * scale * high.y);
    }
    const float2 c = turn.load<even>(0, i, half - i);
    const float2 s = turn.load<even>(half, i, half - i);
    store_two<even>(out + i, half - i,
                    make_float2(__fmaf_rn(-b.x, s.x, a.x * c.x), __fmaf_rn(-b.y, s.y, a.y * c.y)));
    store_two<even>(out + half + i, half - i,
                    make_float2(__fmaf_rn(a.x, s.x, b.x * c.x), __fmaf_rn(a.y, s.y, b.y * c.y)));
  }
}

/// Each warp handles one head (x: row, y: heads by kWarps): query heads first, then k, then v.
template <bool even, class T>
__global__ void rope_and_store_kernel(RopeArguments args, T* cache, T* q_out) {
  const int head = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int all_heads = args.heads + 2 * args.kv_heads;
  const int row = static_cast<int>(blockIdx.x);
  const std::int32_t position = args.positions[row];
  if (head >= all_heads || position < 0) return;
  const int d = args.head_dim;
  const float* in = args.qkv + (static_cast<std::int64_t>(row) * all_heads + head) * d;
  const auto table_row = [&](std::int32_t at) {
    return args.cos_sin + static_cast<std::int64_t>(at) * d;
  };
  Turn turn = {table_row(position), nullptr, nullptr, args.row_pairs, args.column_pairs};
  if (args.rotary != nullptr) {
    const RotaryPosition at = args.rotary[row];
    turn.of_frame = table_row(at.frame);
    turn.of_row = table_row(at.row);
    turn.of_column = table_row(at.column);
  }
  if (head < args.heads) {
    rotate<even>(in, args.q_norm, args.epsilon, turn, d,
                 q_out + (static_cast<std::int64_t>(row) * args.heads + head) * d);
    return;
  }
  T* slot = cache + slot_element(args.kv, args.slots[row]) + args.layer_element;
  const int kv_head = head - args.heads;
  if (kv_head < args.kv_heads) {
    rotate<even>(in, args.k_norm, args.epsilon, turn, d, slot + kv_head * args.kv.head);
    return;
  }
  T* value = slot + args.kv.value + (kv_head - args.kv_heads) * args.kv.head;
  for (int i = 2 * (static_cast<int>(threadIdx.x) % kWarp); i < d; i += 2 * kWarp) {
    store_two<even>(value + i, d - i, load_two<even>(in + i, d - i));
  }
}

}  // namespace

void rope_and_store(const QkvParams& params, const RopeTable& rope, const KvShape& kv, int layer,
                    std::byte* cache, const std::int32_t* positions, const RotaryPosition* rotary,
                    const std::int64_t* slots, int rows, const float* qkv, std::byte* q_out,
                    cudaStream_t stream) {
  if (rows == 0) return;
  RopeArguments args;
  args.cos_sin = rope.cos_sin;
  args.q_norm = params.q_norm;
  args.k_norm = params.k_norm;
  args.epsilon = params.norm_epsilon;
  args.heads = params.heads;
  args.kv_heads = params.kv_heads;
  args.head_dim = params.head_dim;
  args.kv = strides_of(kv);
  args.layer_element = layer * args.kv.layer;
  args.positions = positions;
  args.rotary = rotary;
  args.row_pairs = rope.sections[0];
  args.column_pairs = rope.sections[0] + rope.sections[1];
  args.slots = slots;
  args.qkv = qkv;
  const int heads = params.heads + 2 * params.kv_heads;
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((heads + kWarps - 1) / kWarps));
  const auto start = [&](auto* typed_cache, auto* typed_q) {
    using T = std::remove_pointer_t<decltype(typed_cache)>;
    const bool even = params.head_dim % 4 == 0;  // halves are then even too
    launch(even ? rope_and_store_kernel<true, T> : rope_and_store_kernel<false, T>, grid,
           kWarps * kWarp, 0, stream, args, typed_cache, typed_q);
  };
  if (kv.dtype == DType::bf16) {
    start(reinterpret_cast<__nv_bfloat16*>(cache), reinterpret_cast<__nv_bfloat16*>(q_out));
  } else {
    start(reinterpret_cast<float*>(cache), reinterpret_cast<float*>(q_out));
  }
}

}  // namespace paceline::kernels::cuda
