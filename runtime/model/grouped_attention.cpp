#include "runtime/model/grouped_attention.hpp"

namespace paceline::model {
namespace {

std::size_t query_width(const ModelConfig& config, const Shard& shard) {
  return static_cast<std::size_t>(shard.heads) * config.head_dim;
}

std::size_t qkv_width(const ModelConfig& config, const Shard& shard) {
  return query_width(config, shard) + 2UL * shard.kv_heads * config.head_dim;
}

}  // namespace

GroupedAttentionPass::GroupedAttentionPass(Activations& activations, const ModelConfig& config,
                                           const Shard& shard, int max_rows, DType compute)
    : params_{shard.heads, shard.kv_heads, config.head_dim, nullptr, nullptr, config.norm_epsilon} {
  const std::size_t query_bytes = query_width(config, shard) * size_of(compute);
  qkv_ = activations.make<float>(max_rows, qkv_width(config, shard));
  query_ = activations.make<std::byte>(max_rows, query_bytes);
  attended_ = activations.make<std::byte>(max_rows, query_bytes);
}

std::uint64_t GroupedAttentionPass::row_bytes(const ModelConfig& config, const Shard& shard,
                                              DType compute) {
  return sizeof(float) * qkv_width(config, shard) +
         2 * query_width(config, shard) * size_of(compute);
}

void GroupedAttentionPass::compute(kernels::Operations& operations, const AttentionWeights& weights,
                                   const kernels::RopeTable& rope, int layer,
                                   const std::byte* input, float* delta) {
  store(operations, weights, rope, layer, input);
  const kernels::PassRows part = operations.attended();
  std::byte* const attended = attended_.row(part.first_row);
  operations.attention(params_of(weights), layer, query_.row(part.first_row), attended);
  operations.linear(*weights.output, attended, part.rows, delta);
}

void GroupedAttentionPass::store(kernels::Operations& operations, const AttentionWeights& weights,
                                 const kernels::RopeTable& rope, int layer,
                                 const std::byte* input) {
  const kernels::PassRows part = operations.attended();
  float* const qkv = qkv_.row(part.first_row);
  operations.linear(*weights.qkv, input, part.rows, qkv);
  operations.rope_and_store(params_of(weights), rope, layer, qkv, query_.row(part.first_row));
}

kernels::QkvParams GroupedAttentionPass::params_of(const AttentionWeights& weights) const {
  kernels::QkvParams params = params_;
  params.q_norm = floats(weights.q_norm);
  params.k_norm = floats(weights.k_norm);
  return params;
}

}  // namespace paceline::model
