// Instructions that C++ cannot name. No other file contains assembly: the host emulation of the
// tests (tests/kernels/cuda_host) replaces this file alone.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace paceline::kernels::cuda {

/// The block's dynamic shared memory, aligned to 1024 bytes.
__device__ __forceinline__ std::byte* dynamic_shared() {
  extern __shared__ __align__(1024) std::byte paceline_dynamic_shared[];
  return paceline_dynamic_shared;
}

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// d[16, 8] += a[16, 16] * b[16, 8], bf16 pairs (lower index in the lower half), fp32 sums. With
/// g = lane / 4 and t = lane % 4:
///   a: rows g, g + 8, g, g + 8; columns 2t and 2t + 1 of registers 0, 1, 8 more of 2, 3
///   b: column g; rows 2t and 2t + 1 of register 0, 8 more of 1
///   d: rows g, g, g + 8, g + 8; columns 2t, 2t + 1, 2t, 2t + 1
__device__ __forceinline__ void mma_bf16_16816(float (&d)[4], const std::uint32_t (&a)[4],
                                               const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Loads 8 x 8 matrices of 16-bit elements. Lane 8 i + r gives the address of row r of matrix i (16
/// bytes, so aligned); each lane gets elements 2 (lane % 4) and the next of row lane / 4 of matrix
/// i in registers[i]. `_trans`: of the transposed matrices. x2 reads the addresses of lanes 0 to 15
/// alone.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&registers)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(shared))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&registers)[4],
                                                  const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(shared))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(std::uint32_t (&registers)[2], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(registers[0]), "=r"(registers[1])
               : "r"(shared_address(shared))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_trans(std::uint32_t (&registers)[2],
                                                  const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(registers[0]), "=r"(registers[1])
               : "r"(shared_address(shared))
               : "memory");
}

/// Copies 16 bytes asynchronously, or zeros where not `valid` (global must be a mapped address all
/// the same); both addresses aligned to 16. Arrives with cp_async_wait() of its group.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)),
                 "r"(valid ? 16 : 0)
               : "memory");
}
/// Ends the group of this thread's copies since the last one.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `pending` of this thread's latest groups are under way. Other threads'
/// copies are there after a barrier.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// ---- Warpgroups: four warps, the first a multiple of four in its block. Only sm_90a has them.

/// Descriptor for wgmma of the 16 elements of step `step` of rows in shared memory: 128 bytes a
/// row, its 16-byte pieces permuted (piece ^ row % 8), at an address that is a multiple of 1024.
__device__ __forceinline__ std::uint64_t wgmma_rows(const std::byte* rows, int step) {
  constexpr std::uint64_t kNextRows = 1024 >> 4;  // of 8
  constexpr std::uint64_t kPermuted128 = std::uint64_t{1} << 62;
  const std::uint64_t start = shared_address(rows) + step * 32;
  return (start & 0x3FFFF) >> 4 | std::uint64_t{1} << 16 | kNextRows << 32 | kPermuted128;
}

/// d[64, 8 tiles] += a[64, 16] * b[16, 8 tiles] for a warpgroup, asynchronously: a warp has the
/// fragments of its 16 rows of a and d as mma_bf16_16816() has them; b: see wgmma_rows(). Between
/// wgmma_begin() and the wait for its group nothing may touch d, a or the rows. After stores to
/// shared memory other than bulk copies, fence_shared_for_wgmma() and a barrier come first. tiles:
/// 1, 8 or 16.
template <int tiles>
__device__ void wgmma_bf16(float (&d)[tiles][4], const std::uint32_t (&a)[4], const std::byte* rows,
                           int step);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define PACELINE_QUAD(t) "+f"(d[t][0]), "+f"(d[t][1]), "+f"(d[t][2]), "+f"(d[t][3])
template <>
__device__ __forceinline__ void wgmma_bf16<1>(float (&d)[1][4], const std::uint32_t (&a)[4],
                                              const std::byte* rows, int step) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
      : PACELINE_QUAD(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_rows(rows, step)));
}
template <>
__device__ __forceinline__ void wgmma_bf16<8>(float (&d)[8][4], const std::uint32_t (&a)[4],
                                              const std::byte* rows, int step) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
      : PACELINE_QUAD(0), PACELINE_QUAD(1), PACELINE_QUAD(2), PACELINE_QUAD(3), PACELINE_QUAD(4),
        PACELINE_QUAD(5), PACELINE_QUAD(6), PACELINE_QUAD(7)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_rows(rows, step)));
}
template <>
__device__ __forceinline__ void wgmma_bf16<16>(float (&d)[16][4], const std::uint32_t (&a)[4],
                                               const std::byte* rows, int step) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
      : PACELINE_QUAD(0), PACELINE_QUAD(1), PACELINE_QUAD(2), PACELINE_QUAD(3), PACELINE_QUAD(4),
        PACELINE_QUAD(5), PACELINE_QUAD(6), PACELINE_QUAD(7), PACELINE_QUAD(8), PACELINE_QUAD(9),
        PACELINE_QUAD(10), PACELINE_QUAD(11), PACELINE_QUAD(12), PACELINE_QUAD(13),
        PACELINE_QUAD(14), PACELINE_QUAD(15)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_rows(rows, step)));
}
#undef PACELINE_QUAD
__device__ __forceinline__ void fence_shared_for_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// Makes writes to d and a visible to the next wgmma.
__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Ends the group of the warpgroup's wgmma since the last one.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `pending` of the latest groups are under way.
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
/// Keeps the compiler from moving uses of the values across this point.
template <int tiles>
__device__ __forceinline__ void wgmma_settle(float (&d)[tiles][4]) {
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(d[t][i])::"memory");
  }
}
#else  // never launched: plans have no warpgroups there
template <int tiles>
__device__ void wgmma_bf16(float (&)[tiles][4], const std::uint32_t (&)[4], const std::byte*, int) {
  __trap();
}
__device__ __forceinline__ void fence_shared_for_wgmma() { __trap(); }
__device__ __forceinline__ void wgmma_begin() {}
__device__ __forceinline__ void wgmma_commit() {}
template <int pending>
__device__ __forceinline__ void wgmma_wait() {}
template <int tiles>
__device__ __forceinline__ void wgmma_settle(float (&)[tiles][4]) {}
#endif

}  // namespace paceline::kernels::cuda
