// kernels/cuda/warpgroup_ptx.cuh on the host.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "kernels/cuda/ptx.cuh"

namespace paceline::kernels::cuda {

using Mbarrier = std::uint64_t;

/// Done at once, by each warp for itself; what it uses is watched until it is waited for.
template <int tiles>
void wgmma_bf16(float (&d)[tiles][4], const std::uint32_t (&a)[4], const std::byte* rows, int step,
                bool accumulate, std::source_location where = std::source_location::current()) {
  host::Block& block = host::Block::current();
  if ((rows - block.shared()) % 1024 != 0) block.fault("wgmma: rows are not aligned", where);
  if (!block.is_shared(rows, tiles * 1024)) block.fault("wgmma: not in shared memory", where);
  block.background_check(where);
  const auto piece = [&](int row, int half) {
    return rows + row * 128 + ((step * 2 + half) ^ (row % 8)) * 16;
  };
  const int g = host::lane() / 4;
  const int t = host::lane() % 4;
  for (int tile = 0; tile < tiles; ++tile) {
    if (!accumulate) std::fill(std::begin(d[tile]), std::end(d[tile]), 0.0F);
    std::uint32_t b[2];
    for (int half = 0; half < 2; ++half)
      std::memcpy(&b[half], piece(tile * 8 + g, half) + t * 4, sizeof b[half]);
    mma_bf16_16816(d[tile], a, b, where);
  }
  block.background_use(d, sizeof d);
  block.background_use(a, sizeof a);
  for (int row = host::lane(); row < tiles * 8; row += 32) {
    for (int half = 0; half < 2; ++half) block.background_use(piece(row, half), 16);
  }
}
inline void wgmma_begin(std::source_location where = std::source_location::current()) {
  host::Block::current().background_check(where);
}
inline void wgmma_commit() { host::Block::current().background_commit(); }
template <int pending>
void wgmma_wait(std::source_location where = std::source_location::current()) {
  host::Block::current().background_wait(pending, where);
}
template <int tiles>
void wgmma_settle(float (&)[tiles][4]) {}
inline void fence_shared_for_wgmma() {}

inline void mbarrier_init(Mbarrier* barrier, int arrivals,
                          std::source_location where = std::source_location::current()) {
  host::Block::current().mbarrier_init(barrier, arrivals, where);
}
inline void mbarrier_publish() {}
inline void mbarrier_arrive(Mbarrier* barrier,
                            std::source_location where = std::source_location::current()) {
  host::Block::current().mbarrier_arrive(barrier, 0, where);
}
inline void mbarrier_arrive_expect(Mbarrier* barrier, int bytes,
                                   std::source_location where = std::source_location::current()) {
  host::Block::current().mbarrier_arrive(barrier, bytes, where);
}
inline void mbarrier_wait(Mbarrier* barrier, unsigned parity,
                          std::source_location where = std::source_location::current()) {
  host::Block::current().mbarrier_wait(barrier, parity, where);
}
inline void bulk_copy(std::byte* shared, const std::byte* global, int bytes, Mbarrier* barrier,
                      std::source_location where = std::source_location::current()) {
  host::Block& block = host::Block::current();
  if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(global) % 16 != 0 || bytes % 16 != 0) {
    block.fault("bulk copy: not multiples of 16 bytes", where);
  }
  block.bulk_copy(shared, global, static_cast<std::size_t>(bytes), barrier, where);
}
inline void box_copy(std::byte* shared, const CUtensorMap* map, int column, int row,
                     Mbarrier* barrier,
                     std::source_location where = std::source_location::current()) {
  host::Block& block = host::Block::current();
  if ((shared - block.shared()) % 1024 != 0) block.fault("box copy: not aligned to 1024", where);
  for (int r = 0; r < map->box_rows; ++r) {
    for (int piece = 0; piece < 8; ++piece) {
      // Pieces of 8 elements are whole: row lengths are multiples of 8, as are columns.
      const bool inside = row + r < map->rows && column + piece * 8 < map->columns;
      const std::byte* from = map->base + static_cast<std::ptrdiff_t>(row + r) * map->row_bytes +
                              (column + piece * 8) * 2;
      block.bulk_copy(shared + r * 128 + (piece ^ (r % 8)) * 16, inside ? from : nullptr, 16,
                      barrier, where);
    }
  }
}
template <int registers>
void take_registers() {}
template <int registers>
void give_registers() {}
inline void meet_first(int threads, std::source_location where = std::source_location::current()) {
  host::Block::current().meet_first(threads, where);
}

}  // namespace paceline::kernels::cuda
