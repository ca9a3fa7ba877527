// Sixteen lanes of fp32 or 32-bit integers, whatever the instruction set: one 512-bit register, two
// of 256 bits, or four of 128 bits. Every operation has one meaning lane by lane and reductions
// have one order, so sources written on these types give the same bits on every instruction set
// that has fused multiply-add.
//
// Sources that include this are compiled once per instruction set, with PACELINE_ISA naming the
// namespace. Everything in them must be in that namespace or have internal linkage, and they must
// not call inline functions of the standard library or of shared headers: the linker keeps one copy
// of an inline function, perhaps one that was compiled for another machine.
#pragma once

#include <cstdint>

#if defined(PACELINE_SIMD_AVX512) || defined(PACELINE_SIMD_AVX2)
#include <immintrin.h>
#endif

#ifndef PACELINE_ISA
#error "PACELINE_ISA names the namespace of this instruction set"
#endif

#define PACELINE_INLINE [[gnu::always_inline]] static inline
#define PACELINE_UNROLL _Pragma("GCC unroll 16")

namespace paceline::kernels::cpu::PACELINE_ISA {

inline constexpr int kLanes = 16;

#if defined(PACELINE_SIMD_AVX512)

struct F32 {
  __m512 v;
};
struct U32 {
  __m512i v;
};
struct Mask {
  __mmask16 v;
};

PACELINE_INLINE F32 set1(float x) { return {_mm512_set1_ps(x)}; }
PACELINE_INLINE U32 set1(std::uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
PACELINE_INLINE F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
PACELINE_INLINE U32 load(const std::uint32_t* p) { return {_mm512_loadu_si512(p)}; }
PACELINE_INLINE void store(float* p, F32 x) { _mm512_storeu_ps(p, x.v); }
PACELINE_INLINE void store(std::uint32_t* p, U32 x) { _mm512_storeu_si512(p, x.v); }

PACELINE_INLINE F32 operator+(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
PACELINE_INLINE F32 operator-(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
PACELINE_INLINE F32 operator*(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
PACELINE_INLINE F32 operator/(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
/// a * b + c, rounded once.
PACELINE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
/// a < b ? a : b, so b when one of them is NaN.
PACELINE_INLINE F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
/// a > b ? a : b, so b when one of them is NaN.
PACELINE_INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
PACELINE_INLINE F32 sqrt(F32 a) { return {_mm512_sqrt_ps(a.v)}; }

PACELINE_INLINE U32 operator+(U32 a, U32 b) { return {_mm512_add_epi32(a.v, b.v)}; }
PACELINE_INLINE U32 operator-(U32 a, U32 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
PACELINE_INLINE U32 operator&(U32 a, U32 b) { return {_mm512_and_si512(a.v, b.v)}; }
PACELINE_INLINE U32 operator|(U32 a, U32 b) { return {_mm512_or_si512(a.v, b.v)}; }
PACELINE_INLINE U32 operator^(U32 a, U32 b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int bits>
PACELINE_INLINE U32 shift_left(U32 a) {
  return {_mm512_slli_epi32(a.v, bits)};
}
template <int bits>
PACELINE_INLINE U32 shift_right(U32 a) {
  return {_mm512_srli_epi32(a.v, bits)};
}
template <int bits>
PACELINE_INLINE U32 shift_right_signed(U32 a) {
  return {_mm512_srai_epi32(a.v, bits)};
}

PACELINE_INLINE U32 max_unsigned(U32 a, U32 b) { return {_mm512_max_epu32(a.v, b.v)}; }
PACELINE_INLINE F32 as_float(U32 a) { return {_mm512_castsi512_ps(a.v)}; }
PACELINE_INLINE U32 as_bits(F32 a) { return {_mm512_castps_si512(a.v)}; }
/// Conversions from and to signed 32-bit integers; to_int rounds to nearest even.
PACELINE_INLINE F32 from_int(U32 a) { return {_mm512_cvtepi32_ps(a.v)}; }
PACELINE_INLINE U32 to_int(F32 a) { return {_mm512_cvtps_epi32(a.v)}; }

PACELINE_INLINE Mask less(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
PACELINE_INLINE Mask less_equal(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
PACELINE_INLINE Mask equal(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
/// a >= b, or one of them is NaN.
PACELINE_INLINE Mask not_less(F32 a, F32 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ)}; }
PACELINE_INLINE Mask is_nan(F32 a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
/// Signed comparison of lanes.
PACELINE_INLINE Mask less_int(U32 a, U32 b) { return {_mm512_cmplt_epi32_mask(a.v, b.v)}; }
PACELINE_INLINE Mask operator&(Mask a, Mask b) { return {static_cast<__mmask16>(a.v & b.v)}; }
PACELINE_INLINE Mask operator|(Mask a, Mask b) { return {static_cast<__mmask16>(a.v | b.v)}; }
/// Bit i is lane i.
PACELINE_INLINE std::uint32_t bits_of(Mask a) { return a.v; }
PACELINE_INLINE F32 select(Mask m, F32 yes, F32 no) {
  return {_mm512_mask_blend_ps(m.v, no.v, yes.v)};
}
PACELINE_INLINE U32 select(Mask m, U32 yes, U32 no) {
  return {_mm512_mask_blend_epi32(m.v, no.v, yes.v)};
}
/// a * 2^n in lanes where m is set, for n from -126 to 127; 0 in other lanes.
PACELINE_INLINE F32 ldexp_where(Mask m, F32 a, U32 n) {
  return {_mm512_maskz_scalef_ps(m.v, a.v, from_int(n).v)};
}
/// The first n lanes (0 < n <= 16); the rest are zero.
PACELINE_INLINE F32 load_part(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>(0xFFFFU >> (16 - n)), p)};
}
PACELINE_INLINE void store_part(float* p, F32 x, int n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>(0xFFFFU >> (16 - n)), x.v);
}
/// Loads 16 bf16 values as fp32.
PACELINE_INLINE F32 load_bf16(const std::uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
/// Stores the low 16 bits of each lane.
PACELINE_INLINE void store_low16(std::uint16_t* p, U32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x.v));
}
/// The first 8 lanes; the rest are zero.
PACELINE_INLINE U32 load_half(const std::uint32_t* p) {
  return {_mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
/// Stores the first 8 lanes.
PACELINE_INLINE void store_half(std::uint32_t* p, U32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_castsi512_si256(x.v));
}

/// Sum of all lanes: a[i] + a[i+8], then distances 4, 2 and 1. Every sum over lanes has this order.
PACELINE_INLINE float sum(F32 a) {
  const __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1));
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), upper);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
/// The largest lane. No lane may be NaN.
PACELINE_INLINE float max_lane(F32 a) {
  const __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1));
  const __m256 m8 = _mm256_max_ps(_mm512_castps512_ps256(a.v), upper);
  const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
  const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_shuffle_ps(m2, m2, 1)));
}

#define PACELINE_QUARTERS(a, b, which) \
  { _mm512_shuffle_f32x4(a.v, b.v, which) }
#define PACELINE_FOURS(a, b, which) \
  { _mm512_shuffle_ps(a.v, b.v, which) }
/// Lane r of the result: all lanes of rows[r] reduced by `join`, in the order of sum(). Vectors
/// hold halves of two rows side by side, then quarters of four rows, and so on.
template <int N, class Join>
PACELINE_INLINE F32 reduce_rows(const F32 (&rows)[N], Join&& join) {
  const F32 none = {_mm512_setzero_ps()};
  const auto eights = [&](int r) __attribute__((always_inline)) {
    const F32 a = r < N ? rows[r < N ? r : 0] : none;
    const F32 b = r + 4 < N ? rows[r + 4 < N ? r + 4 : 0] : none;
    return join(F32 PACELINE_QUARTERS(a, b, 0x44), F32 PACELINE_QUARTERS(a, b, 0xEE));
  };
  const auto fours = [&](int r) __attribute__((always_inline)) {  // rows r, r + 4, r + 8, r + 12
    const F32 a = eights(r);
    const F32 b = N > 8 ? eights(r + 8) : a;
    return join(F32 PACELINE_QUARTERS(a, b, 0x88), F32 PACELINE_QUARTERS(a, b, 0xDD));
  };
  const auto twos = [&](int r) __attribute__((always_inline)) {  // of rows r and r + 1, alternating
    const F32 a = fours(r);
    const F32 b = N > r + 1 ? fours(r + 1) : a;
    return join(F32 PACELINE_FOURS(a, b, 0x44), F32 PACELINE_FOURS(a, b, 0xEE));
  };
  const F32 a = twos(0);
  const F32 b = N > 2 ? twos(2) : a;
  return join(F32 PACELINE_FOURS(a, b, 0x88), F32 PACELINE_FOURS(a, b, 0xDD));
}
#undef PACELINE_QUARTERS
#undef PACELINE_FOURS
/// Lane r: sum(rows[r]). Other lanes are undefined.
template <int N>
PACELINE_INLINE F32 sums(const F32 (&rows)[N]) {
  return reduce_rows(
      rows, [](F32 a, F32 b) __attribute__((always_inline)) { return a + b; });
}
/// Lane r: max_lane(rows[r]). Other lanes are undefined.
template <int N>
PACELINE_INLINE F32 max_lanes(const F32 (&rows)[N]) {
  return reduce_rows(
      rows, [](F32 a, F32 b) __attribute__((always_inline)) { return max(a, b); });
}

#else  // vectors of the compiler: two of 256 bits with AVX2, else four of 128 bits

#if defined(PACELINE_SIMD_AVX2)
inline constexpr int kParts = 2;
#define PACELINE_PARTS(part) \
  { part(0), part(1) }
#else
inline constexpr int kParts = 4;
#define PACELINE_PARTS(part) \
  { part(0), part(1), part(2), part(3) }
#endif
inline constexpr int kPartLanes = kLanes / kParts;
using Floats = float __attribute__((vector_size(4 * kPartLanes)));
using Ints = std::int32_t __attribute__((vector_size(4 * kPartLanes)));
using Words = std::uint32_t __attribute__((vector_size(4 * kPartLanes)));
// The same at any address of a lane.
using FloatsAt = float __attribute__((vector_size(4 * kPartLanes), aligned(4), may_alias));
using WordsAt = std::uint32_t __attribute__((vector_size(4 * kPartLanes), aligned(4), may_alias));

struct F32 {
  Floats v[kParts];
};
struct U32 {
  Words v[kParts];
};
struct Mask {  // all bits of a lane set or none
  Ints v[kParts];
};

// Parts are named one by one: an index that a loop counts would keep them in memory.
#define PACELINE_EACH(type, expression)                                               \
  const auto part = [&](int i) __attribute__((always_inline)) { return expression; }; \
  return type { PACELINE_PARTS(part) }

// Operations that AVX2 has instructions for, which the compiler may not find by itself.
#if defined(PACELINE_SIMD_AVX2)
PACELINE_INLINE Floats broadcast(float x) { return _mm256_set1_ps(x); }
PACELINE_INLINE F32 fma(F32 a, F32 b, F32 c) {
  PACELINE_EACH(F32, (Floats)_mm256_fmadd_ps(a.v[i], b.v[i], c.v[i]));
}
PACELINE_INLINE F32 min(F32 a, F32 b) { PACELINE_EACH(F32, (Floats)_mm256_min_ps(a.v[i], b.v[i])); }
PACELINE_INLINE F32 max(F32 a, F32 b) { PACELINE_EACH(F32, (Floats)_mm256_max_ps(a.v[i], b.v[i])); }
PACELINE_INLINE F32 sqrt(F32 a) { PACELINE_EACH(F32, (Floats)_mm256_sqrt_ps(a.v[i])); }
PACELINE_INLINE Mask not_less(F32 a, F32 b) {
  PACELINE_EACH(Mask, (Ints)_mm256_cmp_ps(a.v[i], b.v[i], _CMP_NLT_UQ));
}
PACELINE_INLINE std::uint32_t bits_of(Mask a) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps((__m256)a.v[0])) |
         static_cast<std::uint32_t>(_mm256_movemask_ps((__m256)a.v[1])) << 8;
}
PACELINE_INLINE F32 select(Mask m, F32 yes, F32 no) {
  PACELINE_EACH(F32, (Floats)_mm256_blendv_ps(no.v[i], yes.v[i], (__m256)m.v[i]));
}
PACELINE_INLINE U32 to_int(F32 a) { PACELINE_EACH(U32, (Words)_mm256_cvtps_epi32(a.v[i])); }
PACELINE_INLINE F32 load_bf16(const std::uint16_t* p) {
  const auto half = [p](int i) __attribute__((always_inline)) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i)));
  };
  PACELINE_EACH(F32, (Floats)((Words)half(i) << 16));
}
PACELINE_INLINE void store_low16(std::uint16_t* p, U32 x) {
  const Words mask = (Words)_mm256_set1_epi32(0xFFFF);
  const __m256i packed = _mm256_packus_epi32((__m256i)(x.v[0] & mask), (__m256i)(x.v[1] & mask));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
}
PACELINE_INLINE float sum(F32 a) {
  const __m256 s8 = a.v[0] + a.v[1];
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
PACELINE_INLINE float max_lane(F32 a) {
  const __m256 m8 = _mm256_max_ps(a.v[0], a.v[1]);
  const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
  const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_shuffle_ps(m2, m2, 1)));
}
#else
PACELINE_INLINE Floats broadcast(float x) { return Floats{x, x, x, x}; }
/// a * b + c, rounded twice if there is no fused instruction: emulating the single rounding would
/// cost a library call for each lane. So the bits of "portable" are its own.
PACELINE_INLINE F32 fma(F32 a, F32 b, F32 c) {
#ifdef __FP_FAST_FMAF
  F32 out;
  PACELINE_UNROLL for (int i = 0; i < 4; ++i) {
    PACELINE_UNROLL for (int j = 0; j < 4; ++j) {
      out.v[i][j] = __builtin_fmaf(a.v[i][j], b.v[i][j], c.v[i][j]);
    }
  }
  return out;
#else
  PACELINE_EACH(F32, a.v[i] * b.v[i] + c.v[i]);
#endif
}
PACELINE_INLINE Mask not_less(F32 a, F32 b) { PACELINE_EACH(Mask, ~(a.v[i] < b.v[i])); }
PACELINE_INLINE std::uint32_t bits_of(Mask a) {
  std::uint32_t out = 0;
  PACELINE_UNROLL for (int i = 0; i < 16; ++i) {
    out |= static_cast<std::uint32_t>(a.v[i / 4][i % 4] & 1) << i;
  }
  return out;
}
PACELINE_INLINE F32 select(Mask m, F32 yes, F32 no) {
  PACELINE_EACH(F32, (Floats)((m.v[i] & (Ints)yes.v[i]) | (~m.v[i] & (Ints)no.v[i])));
}
PACELINE_INLINE F32 min(F32 a, F32 b) { PACELINE_EACH(F32, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
PACELINE_INLINE F32 max(F32 a, F32 b) { PACELINE_EACH(F32, b.v[i] < a.v[i] ? a.v[i] : b.v[i]); }
PACELINE_INLINE F32 sqrt(F32 a) {
  F32 out;
  PACELINE_UNROLL for (int i = 0; i < 16; ++i) {
    out.v[i / 4][i % 4] = __builtin_sqrtf(a.v[i / 4][i % 4]);
  }
  return out;
}
/// Rounds |a| < 2^22 to nearest even: adding 1.5 * 2^23 leaves the integer in the low bits.
PACELINE_INLINE U32 to_int(F32 a) {
  const float magic = 12582912.0F;
  PACELINE_EACH(U32, (Words)(a.v[i] + magic) - (Words)broadcast(magic));
}
PACELINE_INLINE F32 load_bf16(const std::uint16_t* p) {
  U32 out;
  PACELINE_UNROLL for (int i = 0; i < 16; ++i) {
    out.v[i / 4][i % 4] = static_cast<std::uint32_t>(p[i]) << 16;
  }
  PACELINE_EACH(F32, (Floats)out.v[i]);
}
PACELINE_INLINE void store_low16(std::uint16_t* p, U32 x) {
  PACELINE_UNROLL for (int i = 0; i < 16; ++i) {
    p[i] = static_cast<std::uint16_t>(x.v[i / 4][i % 4]);
  }
}
PACELINE_INLINE float sum(F32 a) {
  const Floats s8[2] = {a.v[0] + a.v[2], a.v[1] + a.v[3]};
  const Floats s4 = s8[0] + s8[1];
  const float s2[2] = {s4[0] + s4[2], s4[1] + s4[3]};
  return s2[0] + s2[1];
}
PACELINE_INLINE float max_lane(F32 a) {
  float largest = a.v[0][0];
  PACELINE_UNROLL for (int i = 1; i < 16; ++i) {
    const float lane = a.v[i / 4][i % 4];
    largest = lane > largest ? lane : largest;
  }
  return largest;
}
#endif

PACELINE_INLINE F32 set1(float x) { PACELINE_EACH(F32, ((void)i, broadcast(x))); }
PACELINE_INLINE U32 set1(std::uint32_t x) { PACELINE_EACH(U32, ((void)i, x - Words{})); }
PACELINE_INLINE F32 load(const float* p) {
  PACELINE_EACH(F32, (Floats) * reinterpret_cast<const FloatsAt*>(p + kPartLanes * i));
}
PACELINE_INLINE U32 load(const std::uint32_t* p) {
  PACELINE_EACH(U32, (Words) * reinterpret_cast<const WordsAt*>(p + kPartLanes * i));
}
PACELINE_INLINE void store(float* p, F32 x) {
  PACELINE_UNROLL for (int i = 0; i < kParts; ++i) {
    *reinterpret_cast<FloatsAt*>(p + kPartLanes * i) = x.v[i];
  }
}
PACELINE_INLINE void store(std::uint32_t* p, U32 x) {
  PACELINE_UNROLL for (int i = 0; i < kParts; ++i) {
    *reinterpret_cast<WordsAt*>(p + kPartLanes * i) = x.v[i];
  }
}
PACELINE_INLINE F32 operator+(F32 a, F32 b) { PACELINE_EACH(F32, a.v[i] + b.v[i]); }
PACELINE_INLINE F32 operator-(F32 a, F32 b) { PACELINE_EACH(F32, a.v[i] - b.v[i]); }
PACELINE_INLINE F32 operator*(F32 a, F32 b) { PACELINE_EACH(F32, a.v[i] * b.v[i]); }
PACELINE_INLINE F32 operator/(F32 a, F32 b) { PACELINE_EACH(F32, a.v[i] / b.v[i]); }
PACELINE_INLINE U32 operator+(U32 a, U32 b) { PACELINE_EACH(U32, a.v[i] + b.v[i]); }
PACELINE_INLINE U32 operator-(U32 a, U32 b) { PACELINE_EACH(U32, a.v[i] - b.v[i]); }
PACELINE_INLINE U32 operator&(U32 a, U32 b) { PACELINE_EACH(U32, a.v[i] & b.v[i]); }
PACELINE_INLINE U32 operator|(U32 a, U32 b) { PACELINE_EACH(U32, a.v[i] | b.v[i]); }
PACELINE_INLINE U32 operator^(U32 a, U32 b) { PACELINE_EACH(U32, a.v[i] ^ b.v[i]); }
template <int bits>
PACELINE_INLINE U32 shift_left(U32 a) {
  PACELINE_EACH(U32, a.v[i] << bits);
}
template <int bits>
PACELINE_INLINE U32 shift_right(U32 a) {
  PACELINE_EACH(U32, a.v[i] >> bits);
}
template <int bits>
PACELINE_INLINE U32 shift_right_signed(U32 a) {
  PACELINE_EACH(U32, (Words)((Ints)a.v[i] >> bits));
}
PACELINE_INLINE U32 max_unsigned(U32 a, U32 b) {
  PACELINE_EACH(U32, a.v[i] > b.v[i] ? a.v[i] : b.v[i]);
}
PACELINE_INLINE F32 as_float(U32 a) { PACELINE_EACH(F32, (Floats)a.v[i]); }
PACELINE_INLINE U32 as_bits(F32 a) { PACELINE_EACH(U32, (Words)a.v[i]); }
PACELINE_INLINE F32 from_int(U32 a) {
  PACELINE_EACH(F32, __builtin_convertvector((Ints)a.v[i], Floats));
}
PACELINE_INLINE Mask less(F32 a, F32 b) { PACELINE_EACH(Mask, a.v[i] < b.v[i]); }
PACELINE_INLINE Mask less_equal(F32 a, F32 b) { PACELINE_EACH(Mask, a.v[i] <= b.v[i]); }
PACELINE_INLINE Mask equal(F32 a, F32 b) { PACELINE_EACH(Mask, a.v[i] == b.v[i]); }
PACELINE_INLINE Mask is_nan(F32 a) { PACELINE_EACH(Mask, a.v[i] != a.v[i]); }
PACELINE_INLINE Mask less_int(U32 a, U32 b) { PACELINE_EACH(Mask, (Ints)a.v[i] < (Ints)b.v[i]); }
PACELINE_INLINE Mask operator&(Mask a, Mask b) { PACELINE_EACH(Mask, a.v[i] & b.v[i]); }
PACELINE_INLINE Mask operator|(Mask a, Mask b) { PACELINE_EACH(Mask, a.v[i] | b.v[i]); }
PACELINE_INLINE U32 select(Mask m, U32 yes, U32 no) {
  return as_bits(select(m, as_float(yes), as_float(no)));
}
#undef PACELINE_EACH
#undef PACELINE_PARTS
PACELINE_INLINE U32 load_half(const std::uint32_t* p) {
  U32 out = {};
  __builtin_memcpy(&out, p, sizeof out / 2);
  return out;
}
PACELINE_INLINE void store_half(std::uint32_t* p, U32 x) { __builtin_memcpy(p, &x, sizeof x / 2); }
PACELINE_INLINE F32 ldexp_where(Mask m, F32 a, U32 n) {
  return select(m, a * as_float(shift_left<23>(n + set1(127U))), set1(0.0F));
}
template <int N>
PACELINE_INLINE F32 sums(const F32 (&rows)[N]) {
  float lanes[kLanes] = {};
  PACELINE_UNROLL for (int r = 0; r < N; ++r) lanes[r] = sum(rows[r]);
  return load(lanes);
}
template <int N>
PACELINE_INLINE F32 max_lanes(const F32 (&rows)[N]) {
  float lanes[kLanes] = {};
  PACELINE_UNROLL for (int r = 0; r < N; ++r) lanes[r] = max_lane(rows[r]);
  return load(lanes);
}
PACELINE_INLINE F32 load_part(const float* p, int n) {
  float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
PACELINE_INLINE void store_part(float* p, F32 x, int n) {
  float lanes[kLanes];
  store(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
#endif

/// Loads the first n lanes, which may be all.
PACELINE_INLINE F32 load_n(const float* p, int n) {
  return n == kLanes ? load(p) : load_part(p, n);
}

/// Stores the first n lanes, which may be all.
PACELINE_INLINE void store_n(float* p, F32 x, int n) {
  if (n == kLanes) {
    store(p, x);
  } else {
    store_part(p, x, n);
  }
}

PACELINE_INLINE bool any(Mask a) { return bits_of(a) != 0; }
/// Lane i holds i.
PACELINE_INLINE U32 lane_ids() {
  alignas(64) static constexpr std::uint32_t ids[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                            8, 9, 10, 11, 12, 13, 14, 15};
  return load(ids);
}

PACELINE_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
PACELINE_INLINE void prefetch_l2(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace paceline::kernels::cpu::PACELINE_ISA
