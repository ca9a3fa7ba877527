// How the copy engine of sm_90 finds rows in device memory (a tensor map).
#pragma once

#include <cuda.h>

#include <cstddef>

namespace paceline::kernels::cuda {

/// Elements of a row that one copy takes: 128 bytes, in shared memory with their 16-byte pieces
/// permuted by row (piece ^ row % 8), as wgmma_rows() expects them.
inline constexpr int kMapColumns = 64;

/// A map of rows [count, k] of bf16, of which a copy takes `box` by kMapColumns, zeros beyond the
/// ends. rows: aligned to 16; k: a multiple of 8; box: up to 256. Throws Error (internal) where the
/// driver refuses it. Thread-safe.
[[nodiscard]] CUtensorMap row_map(const std::byte* rows, int count, int k, int box);

}  // namespace paceline::kernels::cuda
