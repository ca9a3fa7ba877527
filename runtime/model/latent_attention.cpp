#include "runtime/model/latent_attention.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::model {
namespace {

kernels::LatentParams params_of(const ModelConfig& config, const Shard& shard) {
  const LatentConfig& latent = *config.latent;
  const auto head = static_cast<float>(config.head_dim + latent.rope);
  return {.heads = shard.heads,
          .nope = config.head_dim,
          .rope = latent.rope,
          .rank = latent.kv_rank,
          .scale = latent.score_scale / std::sqrt(head),
          .norm_epsilon = LatentConfig::kNormEpsilon};
}

}  // namespace

LatentAttentionPass::LatentAttentionPass(Activations& activations, const ModelConfig& config,
                                         const Shard& shard, int max_rows, DType compute)
    : params_(params_of(config, shard)),
      q_rank_(config.latent->q_rank),
      value_dim_(config.latent->value_dim),
      compute_(compute) {
  const auto heads = static_cast<std::size_t>(params_.heads);
  const std::size_t element = size_of(compute);
  if (q_rank_ > 0) {
    q_down_ = activations.make<float>(max_rows, q_rank_);
    q_normed_ = activations.make<std::byte>(max_rows, q_rank_ * element);
  }
  q_ = activations.make<float>(max_rows, heads * (params_.nope + params_.rope));
  kv_ = activations.make<float>(max_rows, params_.width());
  nope_ = activations.make<std::byte>(max_rows, heads * params_.nope * element);
  product_ = activations.make<float>(max_rows, std::max(params_.rank, value_dim_));
  query_ = activations.make<std::byte>(max_rows, heads * params_.width() * element);
  attended_ = activations.make<std::byte>(max_rows, heads * params_.rank * element);
  values_ = activations.make<std::byte>(max_rows, heads * value_dim_ * element);
}

std::uint64_t LatentAttentionPass::row_bytes(const ModelConfig& config, const Shard& shard,
                                             DType compute) {
  const kernels::LatentParams params = params_of(config, shard);
  const LatentConfig& latent = *config.latent;
  const std::uint64_t heads = params.heads;
  const std::uint64_t floats = latent.q_rank + heads * (params.nope + params.rope) +
                               params.width() + std::max(params.rank, latent.value_dim);
  const std::uint64_t elements =
      latent.q_rank + heads * (params.nope + params.width() + params.rank + latent.value_dim);
  return sizeof(float) * floats + size_of(compute) * elements;
}

void LatentAttentionPass::compute(kernels::Operations& operations, const LatentWeights& weights,
                                  const kernels::RopeTable& rope, int layer, const std::byte* input,
                                  float* delta) {
  const kernels::PassRows part = operations.attended();
  const int rows = part.rows;
  const std::size_t element = size_of(compute_);
  kernels::LatentParams params = params_;
  params.norm = floats(weights.kv_norm);
  float* const q = q_.row(part.first_row);
  float* const kv = kv_.row(part.first_row);
  std::byte* const nope = nope_.row(part.first_row);
  std::byte* const query = query_.row(part.first_row);
  std::byte* const attended = attended_.row(part.first_row);
  std::byte* const values = values_.row(part.first_row);
  float* const product = product_.row(part.first_row);

  const std::byte* q_input = input;
  if (weights.q_down != nullptr) {
    float* const down = q_down_.row(part.first_row);
    std::byte* const normed = q_normed_.row(part.first_row);
    operations.linear(*weights.q_down, input, rows, down);
    operations.add_rmsnorm(down, nullptr, floats(weights.q_norm), LatentConfig::kNormEpsilon, rows,
                           q_rank_, compute_, normed);
    q_input = normed;
  }
  operations.linear(*weights.q, q_input, rows, q);
  operations.linear(*weights.kv_down, input, rows, kv);
  operations.latent_rope_and_store(params, rope, layer, q, kv, nope, query);
  for (int head = 0; head < params.heads; ++head) {
    operations.linear(*weights.keys[head],
                      nope + std::size_t{1} * head * rows * params.nope * element, rows, product);
    operations.store_columns(product, rows, params.rank, compute_, query,
                             params.heads * params.width(), head * params.width());
  }
  operations.latent_attention(params, layer, query, attended);
  for (int head = 0; head < params.heads; ++head) {
    operations.linear(*weights.values[head],
                      attended + std::size_t{1} * head * rows * params.rank * element, rows,
                      product);
    operations.store_columns(product, rows, value_dim_, compute_, values, params.heads * value_dim_,
                             head * value_dim_);
  }
  operations.linear(*weights.output, values, rows, delta);
}

}  // namespace paceline::model
