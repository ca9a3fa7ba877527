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

}  // namespace paceline::kernels::cuda
