#include "runtime/model/sharding.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/source_rows.hpp"
#include "runtime/core/error.hpp"

namespace paceline::model {

Shard shard_of(const ModelConfig& config, int rank, int size) {
  const std::int32_t segments = config.segments();
  if (size < 1 || segments % size != 0) {
    throw UsageError(
        fmt::format("layout.verifier_tp: a tensor-parallel degree of {} does not divide this "
                    "model: its {} kv heads and "
                    "intermediate size {} allow the powers of two up to {}",
                    size, config.kv_heads, config.intermediate, segments));
  }
  Shard shard;
  shard.rank = rank;
  shard.size = size;
  shard.heads = config.heads / size;
  shard.first_head = rank * shard.heads;
  shard.kv_heads = config.kv_heads / size;
  shard.first_kv_head = rank * shard.kv_heads;
  shard.intermediate = config.intermediate / size;
  shard.first_intermediate = rank * shard.intermediate;
  shard.segments = segments / size;
  const std::int32_t panel = config.vocab >= 64 * size ? 64 : 1;  // so that each rank has some
  const std::int32_t panels = (config.vocab + panel - 1) / panel;
  for (int r = 0; r <= size; ++r) {
    shard.first_vocab.push_back(std::min(config.vocab, panels * r / size * panel));
  }
  return shard;
}

std::uint64_t weight_bytes(const ModelConfig& config, DType compute, int size) {
  const std::uint64_t h = config.hidden;
  const std::uint64_t d = config.head_dim;
  const std::uint64_t layer = (config.heads + 2 * config.kv_heads) * d * h + config.heads * d * h +
                              3 * h * static_cast<std::uint64_t>(config.intermediate);
  return size_of(compute) * (config.layers * layer + static_cast<std::uint64_t>(config.vocab) * h) /
         size;
}

std::uint64_t embedding_bytes(const ModelConfig& config, DType stored, DType compute, int size) {
  const DType copied = kernels::copied_as(stored);
  if (config.tied_embeddings && size_of(copied) <= size_of(compute)) return 0;
  return size_of(copied) * static_cast<std::uint64_t>(config.vocab) * config.hidden / size;
}

std::uint64_t row_bytes(const ModelConfig& config, DType compute, int size) {
  const std::uint64_t q = static_cast<std::uint64_t>(config.heads) * config.head_dim / size;
  const std::uint64_t kv = static_cast<std::uint64_t>(config.kv_heads) * config.head_dim / size;
  const std::uint64_t hidden = config.hidden;
  const std::uint64_t intermediate = config.intermediate / size;
  return sizeof(float) * (2 * hidden + q + 2 * kv) +
         size_of(compute) * (hidden + 2 * q + intermediate);
}

}  // namespace paceline::model
