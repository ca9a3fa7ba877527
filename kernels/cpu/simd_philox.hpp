// Philox4x32-10 (runtime/core/philox.hpp) for sixteen counters at once.
//
// Its products have 64 bits, and instruction sets compute them from every other 32-bit lane. So
// from the first round to the last, words stay in the lower halves of 64-bit lanes; the upper
// halves hold arbitrary bits.
#pragma once

#include "kernels/cpu/simd.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

#if defined(PACELINE_SIMD_AVX512)

/// Sixteen 64-bit lanes, eight for the even 32-bit lanes and eight for the odd ones.
struct Wide {
  __m512i even, odd;
};

/// Puts the lanes of a into the lower halves.
PACELINE_INLINE Wide widen(U32 a) { return {a.v, _mm512_srli_epi64(a.v, 32)}; }
/// The lower halves.
PACELINE_INLINE U32 narrow(Wide a) {
  return {_mm512_mask_shuffle_epi32(a.even, 0xAAAA, a.odd, _MM_PERM_CCAA)};
}
/// Products of the lower halves with m.
PACELINE_INLINE Wide multiply(Wide a, std::uint32_t m) {
  const __m512i v = set1(m).v;
  return {_mm512_mul_epu32(a.even, v), _mm512_mul_epu32(a.odd, v)};
}
/// The upper halves.
PACELINE_INLINE Wide upper(Wide a) {
  return {_mm512_srli_epi64(a.even, 32), _mm512_srli_epi64(a.odd, 32)};
}
PACELINE_INLINE Wide operator^(Wide a, Wide b) {
  return {_mm512_xor_si512(a.even, b.even), _mm512_xor_si512(a.odd, b.odd)};
}
/// x in the lower half of every lane.
PACELINE_INLINE Wide all_lanes(std::uint32_t x) { return {set1(x).v, set1(x).v}; }

#elif defined(PACELINE_SIMD_AVX2)

struct Wide {
  __m256i even[2], odd[2];
};

PACELINE_INLINE Wide widen(U32 a) {
  const __m256i v[2] = {(__m256i)a.v[0], (__m256i)a.v[1]};
  return {{v[0], v[1]}, {_mm256_srli_epi64(v[0], 32), _mm256_srli_epi64(v[1], 32)}};
}
PACELINE_INLINE U32 narrow(Wide a) {
  U32 out;
  PACELINE_UNROLL for (int i = 0; i < 2; ++i) {
    out.v[i] = (Words)_mm256_blend_epi32(a.even[i], _mm256_slli_epi64(a.odd[i], 32), 0xAA);
  }
  return out;
}
PACELINE_INLINE Wide multiply(Wide a, std::uint32_t m) {
  const __m256i v = _mm256_set1_epi32(static_cast<int>(m));
  return {{_mm256_mul_epu32(a.even[0], v), _mm256_mul_epu32(a.even[1], v)},
          {_mm256_mul_epu32(a.odd[0], v), _mm256_mul_epu32(a.odd[1], v)}};
}
PACELINE_INLINE Wide upper(Wide a) {
  return {{_mm256_srli_epi64(a.even[0], 32), _mm256_srli_epi64(a.even[1], 32)},
          {_mm256_srli_epi64(a.odd[0], 32), _mm256_srli_epi64(a.odd[1], 32)}};
}
PACELINE_INLINE Wide operator^(Wide a, Wide b) {
  return {{_mm256_xor_si256(a.even[0], b.even[0]), _mm256_xor_si256(a.even[1], b.even[1])},
          {_mm256_xor_si256(a.odd[0], b.odd[0]), _mm256_xor_si256(a.odd[1], b.odd[1])}};
}
PACELINE_INLINE Wide all_lanes(std::uint32_t x) {
  const __m256i v = _mm256_set1_epi32(static_cast<int>(x));
  return {{v, v}, {v, v}};
}

#else  // portable: halves in separate vectors

struct Wide {
  U32 low, high;
};

PACELINE_INLINE Wide widen(U32 a) { return {a, a}; }
PACELINE_INLINE U32 narrow(Wide a) { return a.low; }
PACELINE_INLINE Wide multiply(Wide a, std::uint32_t m) {
  Wide out;
  PACELINE_UNROLL for (int i = 0; i < 16; ++i) {
    const std::uint64_t product = std::uint64_t{a.low.v[i / 4][i % 4]} * m;
    out.low.v[i / 4][i % 4] = static_cast<std::uint32_t>(product);
    out.high.v[i / 4][i % 4] = static_cast<std::uint32_t>(product >> 32);
  }
  return out;
}
PACELINE_INLINE Wide upper(Wide a) { return {a.high, a.high}; }
PACELINE_INLINE Wide operator^(Wide a, Wide b) { return {a.low ^ b.low, a.high}; }
PACELINE_INLINE Wide all_lanes(std::uint32_t x) { return {set1(x), set1(x)}; }

#endif

inline constexpr std::uint32_t kPhilox[2] = {0xD2511F53U, 0xCD9E8D57U};

/// Words that are xored to words 0 and 2 in each round, for counters that differ only in word 0.
/// They include the products of word 2 in round 0 and of word 0 in round 1, which are the same for
/// all these counters.
struct PhiloxRounds {
  std::uint32_t x0[10], x2[10];
};
PACELINE_INLINE PhiloxRounds philox_rounds(const std::uint32_t (&key)[2],
                                           const std::uint32_t (&same)[3]) {
  PhiloxRounds rounds;
  for (std::uint32_t i = 0; i < 10; ++i) {
    rounds.x0[i] = key[0] + i * 0x9E3779B9U;
    rounds.x2[i] = key[1] + i * 0xBB67AE85U;
  }
  const std::uint64_t first = std::uint64_t{kPhilox[1]} * same[1];
  const std::uint32_t word0 = static_cast<std::uint32_t>(first >> 32) ^ same[0] ^ rounds.x0[0];
  const std::uint64_t second = std::uint64_t{kPhilox[0]} * word0;
  rounds.x2[0] ^= same[2];
  rounds.x0[1] ^= static_cast<std::uint32_t>(first);
  rounds.x2[1] ^= static_cast<std::uint32_t>(second >> 32);
  rounds.x2[2] ^= static_cast<std::uint32_t>(second);
  return rounds;
}

/// Computes the words of sixteen counters, given their words 0.
PACELINE_INLINE void philox(U32 word0, const PhiloxRounds& rounds, U32 (&words)[4]) {
  // Rounds 0 and 1 compute the products that differ between counters.
  Wide c3 = multiply(widen(word0), kPhilox[0]);
  Wide c2 = upper(c3) ^ all_lanes(rounds.x2[0]);
  Wide c1 = multiply(c2, kPhilox[1]);
  Wide c0 = upper(c1) ^ all_lanes(rounds.x0[1]);
  c2 = c3 ^ all_lanes(rounds.x2[1]);
  c3 = all_lanes(0);  // the same for all counters: part of x2[2]
  PACELINE_UNROLL for (int i = 2; i < 10; ++i) {
    const Wide p0 = multiply(c0, kPhilox[0]);
    const Wide p1 = multiply(c2, kPhilox[1]);
    c0 = upper(p1) ^ c1 ^ all_lanes(rounds.x0[i]);
    c1 = p1;
    c2 = upper(p0) ^ c3 ^ all_lanes(rounds.x2[i]);
    c3 = p0;
  }
  words[0] = narrow(c0);
  words[1] = narrow(c1);
  words[2] = narrow(c2);
  words[3] = narrow(c3);
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
