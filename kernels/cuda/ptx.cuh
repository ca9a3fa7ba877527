// Instructions that C++ cannot express. Only this file and warpgroup_ptx.cuh contain assembly, so
// the host emulation of the tests (tests/kernels/cuda_host) replaces only these.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace paceline::kernels::cuda {

/// Returns the block's dynamic shared memory, aligned to 1024 bytes.
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

/// Loads 8 x 8 matrices of 16-bit elements. Lane 8 i + r gives the address of row r of matrix i,
/// which has 16 bytes and is aligned to 16. In registers[i] each lane gets two elements of row lane
/// / 4 of matrix i, from element 2 (lane % 4) on. `_trans`: the matrices are transposed. x2 reads
/// only the addresses of lanes 0 to 15.
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

/// Copies 16 bytes asynchronously, or zeros if not `valid`; even then `global` must be a mapped
/// address. Both addresses are aligned to 16. The bytes have arrived after cp_async_wait() for
/// their group.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)),
                 "r"(valid ? 16 : 0)
               : "memory");
}
/// Ends a group: this thread's copies since the last group.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `pending` of this thread's latest groups are in flight. Other threads'
/// copies have arrived after a barrier.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace paceline::kernels::cuda
