// The sampler's passes over a row of logits. cpu_sampler.cpp combines them.
#include "kernels/cpu/parts.hpp"
#include "kernels/cpu/simd_math.hpp"
#include "kernels/cpu/simd_philox.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {
namespace {

constexpr int kVectors = kChunk / kLanes;

/// Loads the scaled logits of one chunk; tokens from `end` on become -infinity.
PACELINE_INLINE void load_chunk(const float* logits, int first, int end, F32 scale,
                                F32 (&s)[kVectors]) {
  if (first + kChunk <= end) {
    PACELINE_UNROLL for (int j = 0; j < kVectors; ++j) {
      s[j] = load(logits + first + j * kLanes) * scale;
    }
    return;
  }
  const F32 none = set1(-__builtin_inff());
  PACELINE_UNROLL for (int j = 0; j < kVectors; ++j) {
    const int n = end - first - j * kLanes;
    if (n <= 0) {
      s[j] = none;
    } else if (n >= kLanes) {
      s[j] = load(logits + first + j * kLanes) * scale;
    } else {
      const Mask there = less_int(lane_ids(), set1(static_cast<std::uint32_t>(n)));
      s[j] = select(there, load_part(logits + first + j * kLanes, n) * scale, none);
    }
  }
}

PACELINE_INLINE PhiloxRounds rounds_of(const NoiseArgs& noise) {
  return philox_rounds(noise.key, {noise.step, noise.stream[0], noise.stream[1]});
}

/// Random bits of tokens [64 chunk, 64 chunk + 64): vector j holds word j of 16 neighbouring
/// counters.
PACELINE_INLINE void chunk_bits(const PhiloxRounds& rounds, std::uint32_t chunk,
                                U32 (&bits)[kVectors]) {
  philox(lane_ids() + set1(chunk * 16U), rounds, bits);
}

/// Lower bound of the bits whose noise can reach `needed`: -ln(-ln w) >= d requires w >=
/// exp(-e^-d), which is at least 1 - e^-d. The margin covers the rounding of the noise and of
/// scores near `score`.
PACELINE_INLINE U32 least_bits(F32 needed, float score) {
  const F32 magnitude = set1(score < 0 ? -score : score) + max(needed, set1(0.0F) - needed);
  const F32 margin = set1(1e-3F) + set1(1e-6F) * magnitude;
  // Steps of 2^10 are rounded up; NaN gives all 2^22 of them.
  const F32 complement = exp(margin - needed) * set1(1.001F * 4194304.0F);
  const U32 steps = to_int(min(complement, set1(4194303.0F))) + set1(1U);
  return set1(0U) - shift_left<10>(steps);
}

/// Whether a token of the chunk has at least `least` bits.
PACELINE_INLINE bool reach(const U32 (&bits)[kVectors], std::uint32_t least) {
  const U32 most = max_unsigned(max_unsigned(bits[0], bits[1]), max_unsigned(bits[2], bits[3]));
  // Flipping the top bits makes a signed comparison an unsigned one.
  const U32 flip = set1(0x80000000U);
  return bits_of(less_int(most ^ flip, set1(least) ^ flip)) != 0xFFFFU;
}

/// Inserts a token into the ordered list, unless it is in the list already or comes after the last
/// place.
PACELINE_INLINE void enter(float value, std::int32_t id, int count, float* values,
                           std::int32_t* ids) {
  int place = 0;
  while (place < count && (values[place] > value || (values[place] == value && ids[place] < id))) {
    ++place;
  }
  if (place == count || (values[place] == value && ids[place] == id)) return;
  for (int i = count - 1; i > place; --i) {
    values[i] = values[i - 1];
    ids[i] = ids[i - 1];
  }
  values[place] = value;
  ids[place] = id;
}

/// Enters the tokens of the chunk that begins at token t, with the noise of `bits`.
PACELINE_INLINE void enter_chunk(const RankArgs& args, int t, int end, const U32 (&bits)[kVectors],
                                 int count, float* values, std::int32_t* ids) {
  const F32 none = set1(-__builtin_inff());
  F32 s[kVectors];
  load_chunk(args.logits, t, end, set1(args.inverse_temperature), s);
  PACELINE_UNROLL for (int j = 0; j < kVectors; ++j) {
    const U32 tokens = lane_ids() + set1(static_cast<std::uint32_t>(t + j * kLanes));
    const Mask tie = equal(s[j], set1(args.keep_value)) &
                     less_int(tokens, set1(static_cast<std::uint32_t>(args.keep_id) + 1U));
    const Mask kept = less(set1(args.keep_value), s[j]) | tie;
    s[j] = select(kept, s[j] + gumbel(bits[j]), none);
  }
  for (int j = 0; j < kVectors; ++j) {
    std::uint32_t enters = bits_of(less_equal(set1(values[count - 1]), s[j]) & less(none, s[j]));
    if (enters == 0) continue;
    float lanes[kLanes];
    store(lanes, s[j]);
    for (; enters != 0; enters &= enters - 1) {
      const int lane = __builtin_ctz(enters);
      enter(lanes[lane], t + j * kLanes + lane, count, values, ids);
    }
  }
}

}  // namespace

/// Makes two passes over at most kSpan tokens, which stay in the first-level cache; the second pass
/// prefetches the next span. The sum runs in four accumulators, joined as (0 + 1) + (2 + 3) and
/// then over lanes.
ScanResult scan(const float* logits, int begin, int end, float inverse_temperature,
                float* chunk_max) {
  const F32 scale = set1(inverse_temperature);
  const F32 none = set1(-__builtin_inff());
  F32 s[kVectors];
  F32 largest = none;
  for (int first = begin; first < end; first += kLanes * kChunk) {
    F32 rows[kLanes];  // one for each chunk; maxima are reduced together
    for (int c = 0; c < kLanes; ++c) {
      const int t = first + c * kChunk;
      rows[c] = none;
      if (t >= end) continue;
      load_chunk(logits, t, end, scale, s);
      rows[c] = max(max(s[0], s[1]), max(s[2], s[3]));
    }
    const F32 maxima = max_lanes(rows);
    const int chunks = (end - first + kChunk - 1) / kChunk;
    store_n(chunk_max + first / kChunk, maxima, chunks < kLanes ? chunks : kLanes);
    largest = max(maxima, largest);
  }
  float top = max_lane(largest);
  if (top == 0) {  // zeros of both signs are equal: the first one's sign counts
    int c = begin / kChunk;
    while (chunk_max[c] != 0) ++c;
    top = chunk_max[c];
  }
  const F32 base = set1(top == -__builtin_inff() ? 0.0F : top);
  F32 sums[kVectors] = {set1(0.0F), set1(0.0F), set1(0.0F), set1(0.0F)};
  for (int t = begin; t < end; t += kChunk) {
    load_chunk(logits, t, end, scale, s);
    PACELINE_UNROLL for (int j = 0; j < kVectors; ++j) {
      prefetch(logits + t + kSpan + j * kLanes);
      sums[j] = sums[j] + exp_below(s[j] - base);
    }
  }
  const float total = sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  return {top, static_cast<double>(total), total != total};  // NaN and infinity make the total NaN
}

int gather(const float* logits, const float* chunk_max, int begin, int end,
           float inverse_temperature, float cut, std::int32_t* ids, float* values) {
  const F32 scale = set1(inverse_temperature);
  int count = 0;
  F32 s[kVectors];
  for (int t = begin; t < end; t += kChunk) {
    if (chunk_max[t / kChunk] < cut) continue;
    load_chunk(logits, t, end, scale, s);
    PACELINE_UNROLL for (int j = 0; j < kVectors; ++j) {
      std::uint32_t kept = bits_of(less_equal(set1(cut), s[j]));
      if (t + j * kLanes + kLanes > end) {  // a cut of -infinity must not include padding
        const int n = end - t - j * kLanes;
        kept &= n > 0 ? (1U << n) - 1U : 0U;
      }
      if (kept == 0) continue;
      float lanes[kLanes];
      store(lanes, s[j]);
      for (; kept != 0; kept &= kept - 1) {
        const int lane = __builtin_ctz(kept);
        ids[count] = t + j * kLanes + lane;
        values[count] = lanes[lane];
        ++count;
      }
    }
  }
  return count;
}

void exponentials(const float* in, float max, int count, float* out) {
  for (int i = 0; i < count; i += kLanes) {
    const int n = count - i < kLanes ? count - i : kLanes;
    store_part(out + i, exp(load_part(in + i, n) - set1(max)), n);
  }
}

/// Skips a chunk when no noise could lift its largest logit to the last place of the list (the sum
/// rounds monotonically, so none of its tokens could enter or tie). Also skips a chunk when its own
/// random bits cannot, before computing expensive logarithms. The last place's score is read once
/// for sixteen chunks: it only rises, so an old score skips too few chunks, never too many.
void rank(const RankArgs& args, int begin, int end, int count, float* values, std::int32_t* ids) {
  const PhiloxRounds rounds = rounds_of(args.noise);
  for (int first = begin; first < end; first += kLanes * kChunk) {
    const int there = (end - first + kChunk - 1) / kChunk;
    const F32 largest = load_n(args.chunk_max + first / kChunk, there < kLanes ? there : kLanes);
    const float floor = values[count - 1];
    std::uint32_t chunks = bits_of(less_equal(set1(floor), largest + set1(kGumbelBound)) &
                                   less_equal(set1(args.keep_value), largest));
    if (there < kLanes) chunks &= (1U << there) - 1U;
    std::uint32_t least[kLanes];
    store(least, least_bits(set1(floor) - largest, floor));
    for (; chunks != 0; chunks &= chunks - 1) {
      const int c = __builtin_ctz(chunks);
      U32 bits[kVectors];
      chunk_bits(rounds, static_cast<std::uint32_t>(first / kChunk + c), bits);
      if (reach(bits, least[c])) {
        enter_chunk(args, first + c * kChunk, end, bits, count, values, ids);
      }
    }
  }
}

void noise_chunk(const NoiseArgs& noise, std::uint32_t chunk, std::uint32_t* bits,
                 float* noise_values) {
  U32 words[kVectors];
  chunk_bits(rounds_of(noise), chunk, words);
  PACELINE_UNROLL for (int j = 0; j < kVectors; ++j) {
    store(bits + j * kLanes, words[j]);
    store(noise_values + j * kLanes, gumbel(words[j]));
  }
}

void math16(const float* x, const std::uint32_t* bits, float* exp_x, float* log_x,
            float* gumbel_x) {
  store(exp_x, exp(load(x)));
  store(log_x, log(load(x)));
  store(gumbel_x, gumbel(load(bits)));
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
