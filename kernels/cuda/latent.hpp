// Latent attention on the device. Layout of the cache: kv_layout.cuh. Pointers are to device
// memory; Operations specifies the results.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/row_plan.hpp"

namespace paceline::kernels::cuda {

/// The positions that a row sees, as words for the device. Indices refer to latent_words().
struct LatentRowWords {
  std::int32_t positions;  ///< number of positions that it sees; 0: a row of padding
  std::int32_t base;       ///< first position whose place is on its path
  std::int32_t path;       ///< index of the path's first word
  std::int32_t blocks;     ///< index of the block table's first word
};

/// Makes the words for a pass: LatentRowWords of `padded` rows, then block tables and paths.
void latent_words(const RowPlan& plan, int block, int padded, std::vector<std::int32_t>& words);

/// See Operations::latent_rope_and_store(). positions, slots: [rows] of DeviceBatch; a row at
/// position -1 is skipped.
void latent_rope_and_store(const LatentParams& params, const RopeTable& rope, const KvShape& kv,
                           int layer, std::byte* cache, const std::int32_t* positions,
                           const std::int64_t* slots, int rows, const float* q, const float* latent,
                           std::byte* nope_out, std::byte* q_out, cudaStream_t stream);

/// See Operations::latent_attention(). words: made for the pass by latent_words().
void latent_attention(const LatentParams& params, const KvShape& kv, int layer,
                      const std::byte* cache, const std::int32_t* words, int rows,
                      const std::byte* q, std::byte* out, cudaStream_t stream);

}  // namespace paceline::kernels::cuda
