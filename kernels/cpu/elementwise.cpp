// Row-wise operations: norms with the residual added, activations, sums of experts.
#include "kernels/cpu/parts.hpp"
#include "kernels/cpu/simd_bf16.hpp"
#include "kernels/cpu/simd_math.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {
/// RMSNorm. The sum of squares runs in four accumulators over vectors 0, 1, 2, 3 mod 4 of the row,
/// joined as (0 + 1) + (2 + 3) and then over lanes.
void add_rmsnorm(const NormArgs& args, int first, int last) {
  const int width = args.width;
  for (int r = first; r < last; ++r) {
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(r) * width;
    float* x = args.x + row;
    F32 sums[4] = {set1(0.0F), set1(0.0F), set1(0.0F), set1(0.0F)};
    for (int i = 0; i < width; i += 4 * kLanes) {
      PACELINE_UNROLL for (int j = 0; j < 4; ++j) {
        const int at = i + j * kLanes;
        if (at >= width) break;
        const int n = width - at < kLanes ? width - at : kLanes;
        F32 value = load_n(x + at, n);
        if (args.delta != nullptr) {
          value = value + load_n(args.delta + row + at, n);
          if (n == kLanes) {
            store(x + at, value);
          } else {
            store_part(x + at, value, n);
          }
        }
        sums[j] = fma(value, value, sums[j]);
      }
    }
    const float squares = sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    const F32 mean = set1(squares) / set1(static_cast<float>(width));
    const F32 scale = set1(1.0F) / sqrt(mean + set1(args.epsilon));
    for (int i = 0; i < width; i += kLanes) {
      const int n = width - i < kLanes ? width - i : kLanes;
      const F32 normal = load_n(x + i, n) * scale * load_n(args.weight + i, n);
      store_as(args.out, row + i, normal, n, args.bf16);
    }
  }
}

namespace {

/// The sum of f(i, lanes) over a row's vectors, in four accumulators as in add_rmsnorm().
template <class F>
PACELINE_INLINE float sum_of(int width, F&& f) {
  F32 sums[4] = {set1(0.0F), set1(0.0F), set1(0.0F), set1(0.0F)};
  for (int i = 0; i < width; i += 4 * kLanes) {
    PACELINE_UNROLL for (int j = 0; j < 4; ++j) {
      const int at = i + j * kLanes;
      if (at >= width) break;
      sums[j] = sums[j] + f(at, width - at < kLanes ? width - at : kLanes);
    }
  }
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

}  // namespace

/// LayerNorm: the mean first, and then the squares of distances from it.
void add_layernorm(const NormArgs& args, int first, int last) {
  const int width = args.width;
  const F32 count = set1(static_cast<float>(width));
  for (int r = first; r < last; ++r) {
    const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(r) * width;
    float* x = args.x + row;
    const float all = sum_of(width, [&](int at, int n) {
      F32 value = load_n(x + at, n);
      if (args.delta != nullptr) {
        value = value + load_n(args.delta + row + at, n);
        if (n == kLanes) {
          store(x + at, value);
        } else {
          store_part(x + at, value, n);
        }
      }
      return value;
    });
    const F32 mean = set1(all) / count;
    const float squares = sum_of(width, [&](int at, int n) {
      F32 off = load_n(x + at, n) - mean;
      if (n < kLanes) {  // lanes past the row are zero, and no distance
        const Mask in_row = less_int(lane_ids(), set1(static_cast<std::uint32_t>(n)));
        off = select(in_row, off, set1(0.0F));
      }
      return off * off;
    });
    const F32 scale = set1(1.0F) / sqrt(set1(squares) / count + set1(args.epsilon));
    for (int i = 0; i < width; i += kLanes) {
      const int n = width - i < kLanes ? width - i : kLanes;
      const F32 normal = (load_n(x + i, n) - mean) * scale;
      store_as(args.out, row + i, fma(normal, load_n(args.weight + i, n), load_n(args.bias + i, n)),
               n, args.bf16);
    }
  }
}

void quick_gelu(const float* in, int width, bool bf16, std::byte* out) {
  for (int i = 0; i < width; i += kLanes) {
    const int n = width - i < kLanes ? width - i : kLanes;
    const F32 x = load_n(in + i, n);
    store_as(out, i, x / (set1(1.0F) + exp(set1(-1.702F) * x)), n, bf16);
  }
}

void swiglu(const SwigluArgs& args) {
  for (int r = 0; r < args.rows; ++r) {
    const float* gates = args.gate + r * args.stride;
    const float* ups = args.up + r * args.stride;
    for (int i = 0; i < args.width; i += kLanes) {
      const int n = args.width - i < kLanes ? args.width - i : kLanes;
      const F32 gate = load_n(gates + i, n);
      const F32 up = load_n(ups + i, n);
      store_as(args.out, r * args.out_stride + i, gated(gate, up), n, args.bf16);
    }
  }
}

void combine(const CombineArgs& args) {
  for (int i = 0; i < args.width; i += kLanes) {
    const int n = args.width - i < kLanes ? args.width - i : kLanes;
    F32 waiting[kMostSegmentLevels];  // sums that wait for their neighbour, by tree level
    F32 sum = set1(0.0F);
    int choice = 0;
    for (int segment = 0; segment < args.segments; ++segment) {
      const std::int32_t end = args.first + (segment + 1) * args.of_segment;
      sum = set1(0.0F);
      for (; choice < args.chosen && args.ids[choice] < end; ++choice) {
        if (args.places[choice] < 0) continue;
        const float* result = args.results + std::ptrdiff_t{args.places[choice]} * args.width;
        sum = fma(set1(args.weights[choice]), load_n(result + i, n), sum);
      }
      int level = 0;
      for (; (segment >> level & 1) != 0; ++level) sum = waiting[level] + sum;
      waiting[level] = sum;
    }
    if (n == kLanes) {
      store(args.out + i, sum);
    } else {
      store_part(args.out + i, sum, n);
    }
  }
}

void add_gated(float* x, const float* delta, float gate, int width) {
  const F32 scale = set1(1.0F) / (set1(1.0F) + exp(set1(0.0F) - set1(gate)));
  for (int i = 0; i < width; i += kLanes) {
    const int n = width - i < kLanes ? width - i : kLanes;
    const F32 sum = fma(scale, load_n(delta + i, n), load_n(x + i, n));
    if (n == kLanes) {
      store(x + i, sum);
    } else {
      store_part(x + i, sum, n);
    }
  }
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
