// CUDA C++ for a host compiler: qualifiers, vector types, built-in variables, barriers, warp
// collectives, atomics and arithmetic, in the part that paceline's kernels use. There is no
// __shared__ (kernels keep shared memory in dynamic_shared()), no atomicAdd of floats (its order is
// not defined) and no fast arithmetic.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "cuda_runtime_api.h"
#include "tests/kernels/cuda_host/block.hpp"
#include "tests/kernels/cuda_host/runtime.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

// ---- vector types ------------------------------------------------------------------------------
#define PACELINE_VECTOR_TYPES(T, name)                               \
  struct name##1 {                                                   \
    T x;                                                             \
  };                                                                 \
  struct alignas(2 * sizeof(T)) name##2 {                            \
    T x, y;                                                          \
  };                                                                 \
  struct name##3 {                                                   \
    T x, y, z;                                                       \
  };                                                                 \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 {  \
    T x, y, z, w;                                                    \
  };                                                                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
PACELINE_VECTOR_TYPES(signed char, char)
PACELINE_VECTOR_TYPES(unsigned char, uchar)
PACELINE_VECTOR_TYPES(short, short)
PACELINE_VECTOR_TYPES(unsigned short, ushort)
PACELINE_VECTOR_TYPES(int, int)
PACELINE_VECTOR_TYPES(unsigned, uint)
PACELINE_VECTOR_TYPES(long long, longlong)
PACELINE_VECTOR_TYPES(unsigned long long, ulonglong)
PACELINE_VECTOR_TYPES(float, float)
PACELINE_VECTOR_TYPES(double, double)
#undef PACELINE_VECTOR_TYPES

// ---- built-in variables ------------------------------------------------------------------------
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

// ---- barriers ----------------------------------------------------------------------------------
inline void __syncthreads(std::source_location where = std::source_location::current()) {
  paceline::cuda_host::Block::current().barrier(false, where);
}
inline int __syncthreads_count(int predicate,
                               std::source_location where = std::source_location::current()) {
  return paceline::cuda_host::Block::current().barrier(predicate != 0, where);
}
inline int __syncthreads_or(int predicate,
                            std::source_location where = std::source_location::current()) {
  return paceline::cuda_host::Block::current().barrier(predicate != 0, where) != 0 ? 1 : 0;
}
inline int __syncthreads_and(int predicate,
                             std::source_location where = std::source_location::current()) {
  return paceline::cuda_host::Block::current().barrier(predicate == 0, where) == 0 ? 1 : 0;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// ---- warp collectives --------------------------------------------------------------------------
namespace paceline::cuda_host {

struct NoArguments {};
inline void nothing(const Lanes<NoArguments>&, std::uint32_t) {}

template <class T>
struct ShuffleArguments {
  T value;
  int from;  ///< lane
  T result;
  bool missing;
};
template <class T>
void shuffle_lanes(const Lanes<ShuffleArguments<T>>& lanes, std::uint32_t mask) {
  for (int i = 0; i < kWarp; ++i) {
    if ((mask >> i & 1U) == 0) continue;
    lanes[i]->missing = (mask >> lanes[i]->from & 1U) == 0;
    if (!lanes[i]->missing) lanes[i]->result = lanes[lanes[i]->from]->value;
  }
}
template <class T>
T shuffle(std::uint32_t mask, T value, int from, const std::source_location& where) {
  Block& block = Block::current();
  ShuffleArguments<T> mine{value, from, value, false};
  block.collective(mask, mine, &shuffle_lanes<T>, where);
  if (mine.missing) block.fault("reads a lane outside the mask", where);
  return mine.result;
}
inline int lane() {
  return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) %
         kWarp;
}
template <class T>
concept Shuffled = std::is_arithmetic_v<T> &&(sizeof(T) == 4 || sizeof(T) == 8);

struct VoteArguments {
  bool predicate;
  std::uint32_t result;
};
inline void vote(const Lanes<VoteArguments>& lanes, std::uint32_t mask) {
  std::uint32_t ballot = 0;
  for (int i = 0; i < kWarp; ++i) {
    if ((mask >> i & 1U) != 0 && lanes[i]->predicate) ballot |= 1U << i;
  }
  for (VoteArguments* lane : lanes) {
    if (lane != nullptr) lane->result = ballot;
  }
}
inline std::uint32_t ballot(std::uint32_t mask, bool predicate, const std::source_location& where) {
  VoteArguments mine{predicate, 0};
  Block::current().collective(mask, mine, &vote, where);
  return mine.result;
}

template <class T>
struct ReduceArguments {
  T value;
};
template <class T, class Operation>
void reduce_lanes(const Lanes<ReduceArguments<T>>& lanes, std::uint32_t mask) {
  T sum{};
  bool first = true;
  for (int i = 0; i < kWarp; ++i) {
    if ((mask >> i & 1U) == 0) continue;
    sum = first ? lanes[i]->value : Operation{}(sum, lanes[i]->value);
    first = false;
  }
  for (ReduceArguments<T>* lane : lanes) {
    if (lane != nullptr) lane->value = sum;
  }
}
template <class Operation, class T>
T reduce(std::uint32_t mask, T value, const std::source_location& where) {
  ReduceArguments<T> mine{value};
  Block::current().collective(mask, mine, &reduce_lanes<T, Operation>, where);
  return mine.value;
}
struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  }
};
struct Least {
  template <class T>
  T operator()(T a, T b) const {
    return std::min(a, b);
  }
};
struct Greatest {
  template <class T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
};

template <class T>
struct MatchArguments {
  T value;
  std::uint32_t result;
};
template <class T>
void match_lanes(const Lanes<MatchArguments<T>>& lanes, std::uint32_t) {
  for (MatchArguments<T>* lane : lanes) {
    if (lane == nullptr) continue;
    for (int i = 0; i < kWarp; ++i) {
      if (lanes[i] != nullptr && lanes[i]->value == lane->value) lane->result |= 1U << i;
    }
  }
}

}  // namespace paceline::cuda_host

inline void __syncwarp(unsigned mask = 0xFFFFFFFFU,
                       std::source_location where = std::source_location::current()) {
  paceline::cuda_host::NoArguments mine;
  paceline::cuda_host::Block::current().collective(mask, mine, &paceline::cuda_host::nothing,
                                                   where);
}
template <paceline::cuda_host::Shuffled T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              std::source_location where = std::source_location::current()) {
  const int segment = paceline::cuda_host::lane() / width * width;
  return paceline::cuda_host::shuffle(mask, value, segment + source % width, where);
}
template <paceline::cuda_host::Shuffled T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  std::source_location where = std::source_location::current()) {
  const int lane = paceline::cuda_host::lane();
  const int from = lane ^ lane_mask;
  return paceline::cuda_host::shuffle(mask, value, from / width > lane / width ? lane : from,
                                      where);
}
template <paceline::cuda_host::Shuffled T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 std::source_location where = std::source_location::current()) {
  const int lane = paceline::cuda_host::lane();
  const int from =
      lane % width - static_cast<int>(delta) < 0 ? lane : lane - static_cast<int>(delta);
  return paceline::cuda_host::shuffle(mask, value, from, where);
}
template <paceline::cuda_host::Shuffled T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   std::source_location where = std::source_location::current()) {
  const int lane = paceline::cuda_host::lane();
  const int from =
      lane % width + static_cast<int>(delta) >= width ? lane : lane + static_cast<int>(delta);
  return paceline::cuda_host::shuffle(mask, value, from, where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              std::source_location where = std::source_location::current()) {
  return paceline::cuda_host::ballot(mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate,
                      std::source_location where = std::source_location::current()) {
  return paceline::cuda_host::ballot(mask, predicate != 0, where) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      std::source_location where = std::source_location::current()) {
  return paceline::cuda_host::ballot(mask, predicate == 0, where) == 0 ? 1 : 0;
}
#define PACELINE_WARP_REDUCTION(name, T, Operation)                                         \
  inline T name(unsigned mask, T value,                                                     \
                std::source_location where = std::source_location::current()) {             \
    return paceline::cuda_host::reduce<paceline::cuda_host::Operation>(mask, value, where); \
  }
PACELINE_WARP_REDUCTION(__reduce_add_sync, unsigned, Sum)
PACELINE_WARP_REDUCTION(__reduce_add_sync, int, Sum)
PACELINE_WARP_REDUCTION(__reduce_min_sync, unsigned, Least)
PACELINE_WARP_REDUCTION(__reduce_min_sync, int, Least)
PACELINE_WARP_REDUCTION(__reduce_max_sync, unsigned, Greatest)
PACELINE_WARP_REDUCTION(__reduce_max_sync, int, Greatest)
#undef PACELINE_WARP_REDUCTION
template <paceline::cuda_host::Shuffled T>
unsigned __match_any_sync(unsigned mask, T value,
                          std::source_location where = std::source_location::current()) {
  paceline::cuda_host::MatchArguments<T> mine{value, 0};
  paceline::cuda_host::Block::current().collective(mask, mine, &paceline::cuda_host::match_lanes<T>,
                                                   where);
  return mine.result;
}

// ---- atomics -----------------------------------------------------------------------------------
// Threads take turns only at barriers and collectives, so plain memory accesses do.
template <class T>
concept AtomicInteger =
    std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, unsigned long long>;
template <AtomicInteger T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  using Unsigned = std::make_unsigned_t<T>;
  const T old = *at;
  *at = static_cast<T>(static_cast<Unsigned>(old) + static_cast<Unsigned>(value));
  return old;
}
template <AtomicInteger T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  const T old = *at;
  *at = std::max(old, value);
  return old;
}
template <AtomicInteger T>
T atomicMin(T* at, std::type_identity_t<T> value) {
  const T old = *at;
  *at = std::min(old, value);
  return old;
}
template <AtomicInteger T>
T atomicOr(T* at, std::type_identity_t<T> value) {
  return std::exchange(*at, *at | value);
}
template <AtomicInteger T>
T atomicAnd(T* at, std::type_identity_t<T> value) {
  return std::exchange(*at, *at & value);
}
template <AtomicInteger T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return std::exchange(*at, value);
}
template <AtomicInteger T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}

// ---- arithmetic --------------------------------------------------------------------------------
using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0F / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float rsqrtf(float a) { return 1.0F / std::sqrt(a); }
/// The smallest float that is not below a.
inline float __double2float_ru(double a) {
  const auto nearest = static_cast<float>(a);
  return static_cast<double>(nearest) < a ? std::nextafter(nearest, INFINITY) : nearest;
}
inline int __float2int_rn(float a) { return static_cast<int>(std::nearbyint(a)); }
inline int __float2int_rz(float a) { return static_cast<int>(a); }
inline int __float2int_rd(float a) { return static_cast<int>(std::floor(a)); }
inline float __int2float_rn(int a) { return static_cast<float>(a); }
inline float __uint2float_rn(unsigned a) { return static_cast<float>(a); }
inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline int __float_as_int(float a) { return std::bit_cast<int>(a); }
inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
inline float __int_as_float(int a) { return std::bit_cast<float>(a); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
inline int __popc(unsigned a) { return std::popcount(a); }
inline int __popcll(unsigned long long a) { return std::popcount(a); }
inline int __clz(int a) { return std::countl_zero(static_cast<unsigned>(a)); }
inline int __clzll(long long a) { return std::countl_zero(static_cast<unsigned long long>(a)); }
inline int __ffs(int a) { return a == 0 ? 0 : std::countr_zero(static_cast<unsigned>(a)) + 1; }

template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T value) {
  *to = value;
}
template <class T>
void __stcg(T* to, T value) {
  *to = value;
}

[[noreturn]] inline void __trap(std::source_location where = std::source_location::current()) {
  paceline::cuda_host::Block::current().fault("has called __trap()", where);
}

// ---- launches ----------------------------------------------------------------------------------
struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  static_assert((std::is_trivially_copyable_v<std::decay_t<Parameters>> && ...),
                "kernel parameters are copied bit by bit");
  std::tuple<std::decay_t<Parameters>...> copies(std::forward<Arguments>(arguments)...);
  return paceline::cuda_host::enqueue_kernel(
      {{config->gridDim.x, config->gridDim.y, config->gridDim.z},
       {config->blockDim.x, config->blockDim.y, config->blockDim.z},
       config->dynamicSmemBytes,
       reinterpret_cast<const void*>(kernel),
       typeid(kernel).name(),
       [kernel, copies] { std::apply(kernel, copies); }},
      config->stream);
}
