// The q/k/v stage: RMSNorm of each head where the model has it, rotary embedding, and the store
// into the cache; also the copy of a position, which depends on the layout of a block.
//
// Block layout for each layer and kv head, in which attention loads whole vectors:
//   bf16: K [head_dim / 2][block][2]   lanes along positions, pairs along the head
//         V [block / 2][head_dim][2]   lanes along the head, pairs along positions
//   fp32: K [head_dim][block]          V [block][head_dim]
// K of all kv heads comes first, then V of all kv heads. Latent vectors lie one after the other,
// each in one piece.
#include "kernels/cpu/parts.hpp"
#include "kernels/cpu/simd_bf16.hpp"
#include "kernels/cpu/simd_math.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {
namespace {

/// Used lanes of the vector that begins at element i of `width`.
PACELINE_INLINE int lanes_at(int i, int width) { return width - i < kLanes ? width - i : kLanes; }

/// Rounds n elements to bf16.
PACELINE_INLINE void round_to(std::uint16_t* out, const float* in, int n) {
  for (int i = 0; i < n; i += kLanes) {
    const int lanes = lanes_at(i, n);
    if (lanes == kLanes) {
      store_bf16(out + i, load(in + i));
    } else {
      store_bf16_part(out + i, load_part(in + i, lanes), lanes);
    }
  }
}

/// 1 / rms of d elements.
PACELINE_INLINE F32 inverse_rms(const float* in, int d, float epsilon) {
  F32 squares = set1(0.0F);
  for (int i = 0; i < d; i += kLanes) {
    const F32 value = load_n(in + i, lanes_at(i, d));
    squares = fma(value, value, squares);
  }
  const F32 mean = set1(sum(squares)) / set1(static_cast<float>(d));
  return set1(1.0F) / sqrt(mean + set1(epsilon));
}

/// x = normalised (if weight is not null) and rotated head of d elements. `in` may be unaligned.
PACELINE_INLINE void rotate(const float* in, const float* weight, const float* cos_sin, int d,
                            float epsilon, float* x) {
  const F32 scale = weight != nullptr ? inverse_rms(in, d, epsilon) : set1(1.0F);
  const int half = d / 2;
  for (int i = 0; i < half; i += kLanes) {
    const int n = lanes_at(i, half);
    F32 a = load_part(in + i, n);
    F32 b = load_part(in + half + i, n);
    if (weight != nullptr) {
      a = a * scale * load_part(weight + i, n);
      b = b * scale * load_part(weight + half + i, n);
    }
    const F32 c = load_part(cos_sin + i, n);
    const F32 s = load_part(cos_sin + half + i, n);
    store_part(x + i, fma(set1(0.0F) - b, s, a * c), n);
    store_part(x + half + i, fma(a, s, b * c), n);
  }
}

/// Rotates pairs (2i, 2i + 1) of `in`; their results are elements i and i + d / 2 of x.
PACELINE_INLINE void rotate_neighbours(const float* in, const float* cos_sin, int d, float* x) {
  float apart[kMaxLatentDim];
  for (int i = 0; i < d / 2; ++i) {
    apart[i] = in[2 * i];
    apart[d / 2 + i] = in[2 * i + 1];
  }
  rotate(apart, nullptr, cos_sin, d, 0, x);
}

/// Writes n elements from element `at` on, in the dtype.
PACELINE_INLINE void write_as(std::byte* out, std::size_t at, const float* in, int n, bool bf16) {
  if (bf16) {
    round_to(reinterpret_cast<std::uint16_t*>(out) + at, in, n);
  } else {
    __builtin_memcpy(out + at * 4, in, static_cast<std::size_t>(n) * 4);
  }
}

}  // namespace

void rope_and_store(const RopeArgs& args, const RopeRow& row) {
  const int d = args.head_dim;
  const int stored = args.stored_dim;
  const std::size_t head_elements = static_cast<std::size_t>(stored) * args.block;
  float x[kMaxHeadDim];
  float padded[kMaxHeadDim];
  std::uint16_t rounded[kMaxHeadDim];
  for (int i = d; i < stored; ++i) x[i] = padded[i] = 0;
  for (int h = 0; h < args.heads; ++h) {
    rotate(row.qkv + h * d, args.q_norm, row.cos_sin, d, args.epsilon, x);
    write_as(row.q_out, static_cast<std::size_t>(h) * stored, x, stored, args.bf16);
  }
  const float* k = row.qkv + args.heads * d;
  const float* v = k + args.kv_heads * d;
  for (int h = 0; h < args.kv_heads; ++h) {
    rotate(k + h * d, args.k_norm, row.cos_sin, d, args.epsilon, x);
    const float* value = v + h * d;
    if (stored > d) {
      __builtin_memcpy(padded, value, static_cast<std::size_t>(d) * 4);
      value = padded;
    }
    const std::size_t k_at = h * head_elements;
    const std::size_t v_at = (args.kv_heads + h) * head_elements;
    if (args.bf16) {
      auto* keys = reinterpret_cast<std::uint16_t*>(row.layer) + k_at;
      auto* values = reinterpret_cast<std::uint16_t*>(row.layer) + v_at;
      round_to(rounded, x, stored);
      for (int i = 0; i < stored; i += 2) {
        std::uint16_t* to = keys + (static_cast<std::size_t>(i / 2) * args.block + row.slot) * 2;
        __builtin_memcpy(to, rounded + i, 4);
      }
      round_to(rounded, value, stored);
      std::uint16_t* to =
          values + static_cast<std::size_t>(row.slot / 2) * stored * 2 + row.slot % 2;
      for (int i = 0; i < stored; ++i) to[2 * i] = rounded[i];
    } else {
      float* keys = reinterpret_cast<float*>(row.layer) + k_at;
      float* values = reinterpret_cast<float*>(row.layer) + v_at;
      for (int i = 0; i < stored; ++i)
        keys[static_cast<std::size_t>(i) * args.block + row.slot] = x[i];
      __builtin_memcpy(values + static_cast<std::size_t>(row.slot) * stored, value,
                       static_cast<std::size_t>(stored) * 4);
    }
  }
}

void latent_rope_and_store(const LatentArgs& args, const LatentRow& row) {
  const std::size_t width = args.rank + args.rope;
  float x[kMaxLatentDim];
  for (int h = 0; h < args.heads; ++h) {
    const float* q = row.q + static_cast<std::ptrdiff_t>(h) * (args.nope + args.rope);
    write_as(row.nope_out, h * row.nope_head, q, args.nope, args.bf16);
    rotate_neighbours(q + args.nope, row.cos_sin, args.rope, x);
    write_as(row.q_out, h * width + args.rank, x, args.rope, args.bf16);
  }
  const F32 scale = inverse_rms(row.kv, args.rank, args.epsilon);
  for (int i = 0; i < args.rank; i += kLanes) {
    const int n = lanes_at(i, args.rank);
    store_part(x + i, load_n(row.kv + i, n) * scale * load_part(args.norm + i, n), n);
  }
  rotate_neighbours(row.kv + args.rank, row.cos_sin, args.rope, x + args.rank);
  write_as(row.vector, 0, x, static_cast<int>(width), args.bf16);
}

void copy_slot(const SlotCopy& copy) {
  const int d = copy.head_dim;
  const auto* from_k = reinterpret_cast<const std::uint32_t*>(copy.from_k) + copy.from_slot;
  auto* to_k = reinterpret_cast<std::uint32_t*>(copy.to_k) + copy.to_slot;
  const int elements = copy.bf16 ? d / 2 : d;  // of 4 bytes: a pair or one fp32
  for (std::ptrdiff_t i = 0; i < elements; ++i)
    to_k[i * copy.to_block] = from_k[i * copy.from_block];
  if (copy.bf16) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(copy.from_v) +
                       static_cast<std::ptrdiff_t>(copy.from_slot / 2) * d * 2 + copy.from_slot % 2;
    auto* to = reinterpret_cast<std::uint16_t*>(copy.to_v) +
               static_cast<std::ptrdiff_t>(copy.to_slot / 2) * d * 2 + copy.to_slot % 2;
    for (int i = 0; i < d; ++i) to[2 * i] = from[2 * i];
  } else {
    const std::size_t row = static_cast<std::size_t>(d) * 4;
    __builtin_memmove(copy.to_v + copy.to_slot * row, copy.from_v + copy.from_slot * row, row);
  }
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
