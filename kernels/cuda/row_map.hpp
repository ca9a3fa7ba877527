// Maps with which the copy engine of sm_90 finds rows in device memory (tensor maps).
#pragma once

#include <cuda.h>

#include <cstddef>

namespace paceline::kernels::cuda {

/// Number of elements that one copy takes from a row: 128 bytes. In shared memory their 16-byte
/// pieces are permuted by row (piece ^ row % 8), as wgmma_rows() expects.
inline constexpr int kMapColumns = 64;

/// Returns a map of rows [count, k] in bf16. A copy takes `box` rows by kMapColumns elements, with
/// zeros beyond the ends. rows: aligned to 16; k: a multiple of 8; box: up to 256. Throws Error
/// (internal) if the driver rejects it. Thread-safe.
[[nodiscard]] CUtensorMap row_map(const std::byte* rows, int count, int k, int box);

}  // namespace paceline::kernels::cuda
