// Which part of each weight a rank of a tensor-parallel group holds.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/model_config.hpp"

namespace paceline::model {

/// A rank's share of a model. Query and kv heads, the intermediate width and the vocabulary are cut
/// into `size` neighbouring ranges; the vocabulary in steps of 64, so that shares are whole panels,
/// or of 1 where it is too small for that.
struct Shard {
  int rank = 0;
  int size = 1;
  std::int32_t first_head = 0, heads = 0;
  std::int32_t first_kv_head = 0, kv_heads = 0;
  std::int32_t first_intermediate = 0, intermediate = 0;
  std::int32_t segments = 1;              ///< canonical K-segments this rank sums itself
  std::vector<std::int32_t> first_vocab;  ///< [size + 1] of every rank: rank r has [r, r + 1)

  [[nodiscard]] std::int32_t vocab() const { return first_vocab[rank + 1] - first_vocab[rank]; }
};

/// Throws UsageError when `size` does not divide the model's canonical segments.
[[nodiscard]] Shard shard_of(const ModelConfig& config, int rank, int size);

/// Bytes of the packed weights one rank of `size` holds.
[[nodiscard]] std::uint64_t weight_bytes(const ModelConfig& config, DType compute, int size);

/// Bytes of the embeddings one rank of `size` holds besides, on a backend that copies them from
/// tensors of type `stored`: none where they are tied and the packed head has every bit of them.
[[nodiscard]] std::uint64_t embedding_bytes(const ModelConfig& config, DType stored, DType compute,
                                            int size);

/// Bytes of one row of a step's buffers on one rank of `size`, its logits left out, where gates and
/// ups have no buffer (Backend::gates_in_work()).
[[nodiscard]] std::uint64_t row_bytes(const ModelConfig& config, DType compute, int size);

}  // namespace paceline::model
