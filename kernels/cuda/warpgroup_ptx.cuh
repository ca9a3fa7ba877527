// Instructions of sm_90a as functions: products by warpgroups (four warps together; the index of
// the first is a multiple of four), the copy engine, and barriers in shared memory that count both
// threads and bytes. On other devices they are never reached, because plans have no warpgroups
// there.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/ptx.cuh"

namespace paceline::kernels::cuda {

/// A barrier in shared memory, for the phases of a slot in a pipeline.
using Mbarrier = std::uint64_t;

/// d[64, 8 tiles] = a[64, 16] * b[16, 8 tiles] (+ d if `accumulate`) for a warpgroup,
/// asynchronously: a warp has the fragments of its 16 rows of a and d as mma_bf16_16816() has them.
/// rows: b, with 128 bytes in each row, of which step `step` uses 32. The 16-byte pieces are
/// permuted (piece ^ row % 8), and the address is a multiple of 1024. Between wgmma_begin() and the
/// wait for its group nothing may touch d, a or the rows. tiles: 1, 4, 8, 16 or 24.
template <int tiles>
__device__ void wgmma_bf16(float (&d)[tiles][4], const std::uint32_t (&a)[4], const std::byte* rows,
                           int step, bool accumulate);

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/// Returns the descriptor of b for wgmma.
__device__ __forceinline__ std::uint64_t wgmma_rows(const std::byte* rows, int step) {
  constexpr std::uint64_t kNextRows = 1024 >> 4;  // distance to the next 8 rows
  constexpr std::uint64_t kPermuted128 = std::uint64_t{1} << 62;
  const std::uint64_t start = shared_address(rows) + step * 32;
  return (start & 0x3FFFF) >> 4 | std::uint64_t{1} << 16 | kNextRows << 32 | kPermuted128;
}
#define PACELINE_QUAD(t) "+f"(d[t][0]), "+f"(d[t][1]), "+f"(d[t][2]), "+f"(d[t][3])
template <>
__device__ __forceinline__ void wgmma_bf16<1>(float (&d)[1][4], const std::uint32_t (&a)[4],
                                              const std::byte* rows, int step, bool accumulate) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %9, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, %8, add, 1, 1, 0;\n}"
      : PACELINE_QUAD(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_rows(rows, step)),
        "r"(static_cast<int>(accumulate)));
}
template <>
__device__ __forceinline__ void wgmma_bf16<4>(float (&d)[4][4], const std::uint32_t (&a)[4],
                                              const std::byte* rows, int step, bool accumulate) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, add, 1, 1, 0;\n}"
      : PACELINE_QUAD(0), PACELINE_QUAD(1), PACELINE_QUAD(2), PACELINE_QUAD(3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_rows(rows, step)),
        "r"(static_cast<int>(accumulate)));
}
template <>
__device__ __forceinline__ void wgmma_bf16<8>(float (&d)[8][4], const std::uint32_t (&a)[4],
                                              const std::byte* rows, int step, bool accumulate) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1, 0;\n}"
      : PACELINE_QUAD(0), PACELINE_QUAD(1), PACELINE_QUAD(2), PACELINE_QUAD(3), PACELINE_QUAD(4),
        PACELINE_QUAD(5), PACELINE_QUAD(6), PACELINE_QUAD(7)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_rows(rows, step)),
        "r"(static_cast<int>(accumulate)));
}
template <>
__device__ __forceinline__ void wgmma_bf16<16>(float (&d)[16][4], const std::uint32_t (&a)[4],
                                               const std::byte* rows, int step, bool accumulate) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, add, 1, 1, 0;\n}"
      : PACELINE_QUAD(0), PACELINE_QUAD(1), PACELINE_QUAD(2), PACELINE_QUAD(3), PACELINE_QUAD(4),
        PACELINE_QUAD(5), PACELINE_QUAD(6), PACELINE_QUAD(7), PACELINE_QUAD(8), PACELINE_QUAD(9),
        PACELINE_QUAD(10), PACELINE_QUAD(11), PACELINE_QUAD(12), PACELINE_QUAD(13),
        PACELINE_QUAD(14), PACELINE_QUAD(15)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_rows(rows, step)),
        "r"(static_cast<int>(accumulate)));
}
template <>
__device__ __forceinline__ void wgmma_bf16<24>(float (&d)[24][4], const std::uint32_t (&a)[4],
                                               const std::byte* rows, int step, bool accumulate) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %101, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
      "{%96, %97, %98, %99}, %100, add, 1, 1, 0;\n}"
      : PACELINE_QUAD(0), PACELINE_QUAD(1), PACELINE_QUAD(2), PACELINE_QUAD(3), PACELINE_QUAD(4),
        PACELINE_QUAD(5), PACELINE_QUAD(6), PACELINE_QUAD(7), PACELINE_QUAD(8), PACELINE_QUAD(9),
        PACELINE_QUAD(10), PACELINE_QUAD(11), PACELINE_QUAD(12), PACELINE_QUAD(13),
        PACELINE_QUAD(14), PACELINE_QUAD(15), PACELINE_QUAD(16), PACELINE_QUAD(17),
        PACELINE_QUAD(18), PACELINE_QUAD(19), PACELINE_QUAD(20), PACELINE_QUAD(21),
        PACELINE_QUAD(22), PACELINE_QUAD(23)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_rows(rows, step)),
        "r"(static_cast<int>(accumulate)));
}
#undef PACELINE_QUAD
/// Makes writes to d and a visible to the next wgmma.
__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Ends a group: the warpgroup's wgmma since the last group.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `pending` of the latest groups are in flight.
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
/// Makes stores of this thread to shared memory visible to wgmma and the copy engine after the next
/// barrier.
__device__ __forceinline__ void fence_shared_for_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Initialises a barrier whose phases end when `arrivals` threads and all announced bytes have
/// arrived.
__device__ __forceinline__ void mbarrier_init(Mbarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
/// Makes barriers that this thread has initialised visible to the copy engine; other threads see
/// these barriers after a barrier of the block.
__device__ __forceinline__ void mbarrier_publish() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               :
               : "r"(shared_address(barrier))
               : "memory");
}
/// Arrives, and announces the bytes that copies will bring in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect(Mbarrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
/// Waits for the end of the barrier's latest phase with this parity. Phases count from 0, and a
/// phase of parity 1 counts as ended before the first.
__device__ __forceinline__ void mbarrier_wait(Mbarrier* barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}"
      :
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
}

/// Copies bytes to shared memory in the background; the barrier counts them when they arrive.
/// Addresses and `bytes` are multiples of 16.
__device__ __forceinline__ void bulk_copy(std::byte* shared, const std::byte* global, int bytes,
                                          Mbarrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(bytes),
        "r"(shared_address(barrier))
      : "memory");
}
/// Copies the box of a row_map() at (column, row) in the same way. `shared` is aligned to 1024. All
/// bytes of the box are counted, including those beyond the ends.
__device__ __forceinline__ void box_copy(std::byte* shared, const CUtensorMap* map, int column,
                                         int row, Mbarrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];"
      :
      : "r"(shared_address(shared)), "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

/// Takes registers for each thread of a warpgroup, or gives some back.
template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
/// A barrier for the block's first `threads` threads, which are whole warps.
__device__ __forceinline__ void meet_first(int threads) {
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}
#else
template <int tiles>
__device__ void wgmma_bf16(float (&)[tiles][4], const std::uint32_t (&)[4], const std::byte*, int,
                           bool) {
  __trap();
}
__device__ __forceinline__ void wgmma_begin() {}
__device__ __forceinline__ void wgmma_commit() {}
template <int pending>
__device__ __forceinline__ void wgmma_wait() {}
template <int tiles>
__device__ __forceinline__ void wgmma_settle(float (&)[tiles][4]) {}
__device__ __forceinline__ void fence_shared_for_wgmma() {}
__device__ __forceinline__ void mbarrier_init(Mbarrier*, int) { __trap(); }
__device__ __forceinline__ void mbarrier_publish() {}
__device__ __forceinline__ void mbarrier_arrive(Mbarrier*) {}
__device__ __forceinline__ void mbarrier_arrive_expect(Mbarrier*, int) {}
__device__ __forceinline__ void mbarrier_wait(Mbarrier*, unsigned) {}
__device__ __forceinline__ void bulk_copy(std::byte*, const std::byte*, int, Mbarrier*) {}
__device__ __forceinline__ void box_copy(std::byte*, const CUtensorMap*, int, int, Mbarrier*) {}
template <int registers>
__device__ __forceinline__ void take_registers() {}
template <int registers>
__device__ __forceinline__ void give_registers() {}
__device__ __forceinline__ void meet_first(int) {}
#endif

}  // namespace paceline::kernels::cuda
