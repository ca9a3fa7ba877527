// kernels/cuda/ptx.cuh on the host. The fragments are those that PTX documents; of the sums of mma
// it says little, so here they are exact and rounded once.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace paceline::kernels::cuda {

namespace host = ::paceline::cuda_host;

inline std::byte* dynamic_shared() { return host::Block::current().shared(); }

struct MmaArguments {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};
inline float low_of(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
inline float high_of(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xFFFF0000U); }

/// Much of the time of the emulation's tests: pairs of columns side by side.
inline void mma_lanes(const host::Lanes<MmaArguments>& lanes, std::uint32_t) {
  using Pair = double __attribute__((vector_size(2 * sizeof(double))));
  double a[16][16];
  Pair b[16][4];
  Pair d[16][4];
  for (int lane = 0; lane < 32; ++lane) {
    const MmaArguments& mine = *lanes[lane];
    const int g = lane / 4;
    const int t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      double* at = &a[g + i % 2 * 8][2 * t + i / 2 * 8];
      at[0] = low_of(mine.a[i]);
      at[1] = high_of(mine.a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      b[2 * t + i * 8][g / 2][g % 2] = low_of(mine.b[i]);
      b[2 * t + 1 + i * 8][g / 2][g % 2] = high_of(mine.b[i]);
    }
    for (int i = 0; i < 2; ++i) d[g + i * 8][t] = Pair{mine.d[2 * i], mine.d[2 * i + 1]};
  }
  for (int row = 0; row < 16; ++row) {
    Pair sums[4] = {d[row][0], d[row][1], d[row][2], d[row][3]};
    for (int k = 0; k < 16; ++k) {
#pragma GCC unroll 4
      for (int pair = 0; pair < 4; ++pair) sums[pair] += a[row][k] * b[k][pair];
    }
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) d[row][pair] = sums[pair];
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i)
      lanes[lane]->d[i] = static_cast<float>(d[lane / 4 + i / 2 * 8][lane % 4][i % 2]);
  }
}
inline void mma_bf16_16816(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                           std::source_location where = std::source_location::current()) {
  MmaArguments mine{d, a, b};
  host::Block::current().collective(host::kAllLanes, mine, &mma_lanes, where);
}

struct LdmatrixArguments {
  std::uint32_t* registers;
  const void* address;
};
template <int matrices, bool transposed>
void ldmatrix_lanes(const host::Lanes<LdmatrixArguments>& lanes, std::uint32_t) {
  for (int m = 0; m < matrices; ++m) {
    std::uint16_t x[8][8];
    for (int r = 0; r < 8; ++r) std::memcpy(x[r], lanes[8 * m + r]->address, 16);
    for (int lane = 0; lane < 32; ++lane) {
      const int i = lane / 4;
      const int j = lane % 4 * 2;
      const std::uint32_t low = transposed ? x[j][i] : x[i][j];
      const std::uint32_t high = transposed ? x[j + 1][i] : x[i][j + 1];
      lanes[lane]->registers[m] = low | high << 16;
    }
  }
}
template <int matrices, bool transposed>
void ldmatrix(std::uint32_t* registers, const void* shared, const std::source_location& where) {
  host::Block& block = host::Block::current();
  if (host::lane() < 8 * matrices) {
    if (!block.is_shared(shared, 16)) block.fault("ldmatrix: not in shared memory", where);
    if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0) {
      block.fault("ldmatrix: address not aligned to 16 bytes", where);
    }
  }
  LdmatrixArguments mine{registers, shared};
  block.collective(host::kAllLanes, mine, &ldmatrix_lanes<matrices, transposed>, where);
}
inline void ldmatrix_x4(std::uint32_t (&registers)[4], const void* shared,
                        std::source_location where = std::source_location::current()) {
  ldmatrix<4, false>(registers, shared, where);
}
inline void ldmatrix_x4_trans(std::uint32_t (&registers)[4], const void* shared,
                              std::source_location where = std::source_location::current()) {
  ldmatrix<4, true>(registers, shared, where);
}
inline void ldmatrix_x2(std::uint32_t (&registers)[2], const void* shared,
                        std::source_location where = std::source_location::current()) {
  ldmatrix<2, false>(registers, shared, where);
}
inline void ldmatrix_x2_trans(std::uint32_t (&registers)[2], const void* shared,
                              std::source_location where = std::source_location::current()) {
  ldmatrix<2, true>(registers, shared, where);
}

inline void cp_async_16(void* shared, const void* global, bool valid,
                        std::source_location where = std::source_location::current()) {
  host::Block& block = host::Block::current();
  if (!block.is_shared(shared, 16)) block.fault("cp.async: not to shared memory", where);
  if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(global) % 16 != 0) {
    block.fault("cp.async: address not aligned to 16 bytes", where);
  }
  block.async_copy(static_cast<std::byte*>(shared), static_cast<const std::byte*>(global), valid);
}
inline void cp_async_commit() { host::Block::current().async_commit(); }
template <int pending>
void cp_async_wait() {
  host::Block::current().async_wait(pending);
}

}  // namespace paceline::kernels::cuda
