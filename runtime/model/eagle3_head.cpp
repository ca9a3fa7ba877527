#include "runtime/model/eagle3_head.hpp"

#include <limits>
#include <utility>
#include <vector>

#include "runtime/model/rope.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/model/weight_loader.hpp"

namespace paceline::model {
namespace {

const float* floats(const Weights::Vector& vector) {
  return vector == nullptr ? nullptr : reinterpret_cast<const float*>(vector->data());
}

std::uint64_t layer_weights(const ModelConfig& layer) {
  const std::uint64_t h = layer.hidden;
  const std::uint64_t d = layer.head_dim;
  return (layer.heads + 2 * layer.kv_heads) * d * 2 * h + layer.heads * d * h +
         3 * h * static_cast<std::uint64_t>(layer.intermediate);
}

}  // namespace

Eagle3Weights::Eagle3Weights(kernels::Backend& backend, const Eagle3Config& config,
                             const WeightSource& source, DType compute, const SharedPacking& shared)
    : config_(config), compute_(compute) {
  const std::int64_t hidden = config.layer.hidden;
  WeightLoader loader(backend, source, compute, shared);
  const std::int64_t features = kFeatureLayers * std::int64_t{config.target_hidden};
  fc_ = loader.pack({{"fc.weight", 0, hidden, 0, features}}, {}, kernels::kAnySegments);
  feature_norm_ = loader.uploaded(config.prefix + "hidden_norm.weight", hidden);
  layer_ = loader.layer(config.prefix, config.layer, shard_of(config.layer, 0, 1), 2 * hidden);
  final_norm_ = loader.uploaded("norm.weight", hidden);
  output_ = loader.pack({{"lm_head.weight", 0, config.draft_vocab, 0, hidden}}, {}, 1);
  if (!config.target_ids.empty()) target_ids_ = kernels::upload(backend, config.target_ids);
  bytes_ = loader.bytes();
  source.release_pages();
}

std::size_t packed_bytes(const kernels::Backend& backend, const Eagle3Config& config,
                         DType compute) {
  const ModelConfig& layer = config.layer;
  const auto of = [&](std::int64_t n, std::int64_t k) {
    return backend.packed_bytes(n, k, compute);
  };
  const std::int64_t d = layer.head_dim;
  return of(layer.hidden, kFeatureLayers * std::int64_t{config.target_hidden}) +
         of((layer.heads + 2 * layer.kv_heads) * d, 2 * std::int64_t{layer.hidden}) +
         of(layer.hidden, layer.heads * d) +
         of(2 * std::int64_t{layer.intermediate}, layer.hidden) +
         of(layer.hidden, layer.intermediate) + of(config.draft_vocab, layer.hidden);
}

std::uint64_t weight_bytes(const Eagle3Config& config, DType compute) {
  const std::uint64_t h = config.layer.hidden;
  return size_of(compute) *
         (kFeatureLayers * h * static_cast<std::uint64_t>(config.target_hidden) +
          layer_weights(config.layer) + static_cast<std::uint64_t>(config.draft_vocab) * h);
}

std::uint64_t row_bytes(const Eagle3Config& config, DType compute) {
  const std::uint64_t h = config.layer.hidden;
  const std::uint64_t features =
      kFeatureLayers * static_cast<std::uint64_t>(config.target_hidden) * size_of(compute);
  return row_bytes(config.layer, compute, 1) + features +
         2 * h * (sizeof(float) + size_of(compute));
}

Eagle3Head::Eagle3Head(kernels::Backend& backend, std::shared_ptr<const Eagle3Weights> weights,
                       std::shared_ptr<const kernels::Embedding> embedding, int max_rows,
                       int max_logit_rows, int max_position)
    : backend_(backend),
      weights_(std::move(weights)),
      embedding_(std::move(embedding)),
      shard_(shard_of(weights_->config().layer, 0, 1)) {
  const Eagle3Config& config = weights_->config();
  const ModelConfig& layer = config.layer;
  first_ = backend_.make_recording({weights_->bytes(), true});
  next_ = backend_.make_recording({weights_->bytes(), true});
  rope_ = kernels::upload(backend_, rope_table(layer, max_position));
  rope_view_ = {floats(rope_), layer.head_dim, max_position};

  const kernels::PassRows most = backend_.padded({max_rows, max_logit_rows});
  const std::size_t hidden = layer.hidden;
  const std::size_t q_width = static_cast<std::size_t>(layer.heads) * layer.head_dim;
  const std::size_t element = size_of(weights_->compute());
  target_features_ = activation<std::byte>(most.rows, feature_bytes());
  features_ = activation<float>(most.rows, hidden);
  embedded_ = activation<float>(most.rows, hidden);
  feature_normed_ = activation<float>(most.rows, hidden);
  delta_ = activation<float>(most.rows, hidden);
  qkv_ = activation<float>(most.rows, q_width + 2UL * layer.kv_heads * layer.head_dim);
  if (backend_.gates_in_work()) gate_up_ = activation<float>(most.rows, 2UL * layer.intermediate);
  input_ = activation<std::byte>(most.rows, 2 * hidden * element);
  normed_ = activation<std::byte>(most.rows, hidden * element);
  query_ = activation<std::byte>(most.rows, q_width * element);
  attended_ = activation<std::byte>(most.rows, q_width * element);
  gated_ = activation<std::byte>(most.rows, layer.intermediate * element);
  last_ = activation<std::byte>(most.logit_rows, hidden * element);
  last_features_ = activation<float>(most.logit_rows, hidden);
  draft_logits_ = activation<float>(most.logit_rows, config.draft_vocab);
  if (config.target_ids.empty()) return;
  logits_ = activation<float>(most.logit_rows, layer.vocab);
  // What a pass writes is the head's tokens alone; the others are out of the question for ever.
  const std::vector<float> nothing(layer.vocab, -std::numeric_limits<float>::infinity());
  for (int row = 0; row < most.logit_rows; ++row)
    backend_.write(reinterpret_cast<std::byte*>(logits_.row(row)),
                   std::as_bytes(std::span(nothing)));
}

template <class T>
Eagle3Head::Activation<T> Eagle3Head::activation(int rows, std::size_t width) {
  const std::size_t bytes = rows * width * sizeof(T);
  activation_bytes_ += bytes;
  return {backend_.allocate(bytes), width};
}

kernels::KvShape Eagle3Head::kv_shape(int block) const {
  const ModelConfig& layer = weights_->config().layer;
  return {1, layer.kv_heads, layer.head_dim, block, weights_->compute()};
}

std::size_t Eagle3Head::feature_bytes() const {
  return kFeatureLayers * static_cast<std::size_t>(weights_->config().target_hidden) *
         size_of(weights_->compute());
}

Eagle3Head::Output Eagle3Head::forward(std::span<const std::byte> features,
                                       std::span<const TokenId> tokens,
                                       std::span<const kernels::Segment> segments,
                                       std::span<const std::int32_t> logit_rows,
                                       const kernels::KvShape& kv, std::byte* cache) {
  backend_.write(target_features_.row(0), features);
  return run(*first_, true, tokens, segments, logit_rows, kv, cache);
}

Eagle3Head::Output Eagle3Head::forward(std::span<const float> features,
                                       std::span<const TokenId> tokens,
                                       std::span<const kernels::Segment> segments,
                                       std::span<const std::int32_t> logit_rows,
                                       const kernels::KvShape& kv, std::byte* cache) {
  backend_.write(reinterpret_cast<std::byte*>(features_.row(0)), std::as_bytes(features));
  return run(*next_, false, tokens, segments, logit_rows, kv, cache);
}

Eagle3Head::Output Eagle3Head::run(kernels::Recording& recording, bool of_target,
                                   std::span<const TokenId> tokens,
                                   std::span<const kernels::Segment> segments,
                                   std::span<const std::int32_t> logit_rows,
                                   const kernels::KvShape& kv, std::byte* cache) {
  backend_.begin({tokens, segments, logit_rows, shard_.heads, kv, cache,
                  weights_->config().layer.vocab, rope_view_.max_position});
  backend_.run(recording, [this, of_target](kernels::Operations& operations) {
    compute(operations, of_target);
  });
  return {(logits_.buffer == nullptr ? draft_logits_ : logits_).row(0), last_features_.row(0)};
}

// What attention reads of a row: the embedding of its token beside the feature, each normalised.
void Eagle3Head::read_input(kernels::Operations& operations, bool of_target) {
  const ModelConfig& layer = weights_->config().layer;
  const DType dtype = weights_->compute();
  const kernels::PassRows& part = operations.rows();
  const int rows = part.rows;
  const int hidden = layer.hidden;
  float* const features = features_.row(part.first_row);
  float* const embedded = embedded_.row(part.first_row);
  float* const normed = feature_normed_.row(part.first_row);
  std::byte* const input = input_.row(part.first_row);
  if (of_target)
    operations.linear(weights_->fc(), target_features_.row(part.first_row), rows, features);
  operations.embed(*embedding_, embedded);
  operations.add_rmsnorm(embedded, nullptr, floats(weights_->layer().attention_norm),
                         layer.norm_epsilon, rows, hidden, DType::f32,
                         reinterpret_cast<std::byte*>(normed));
  operations.store_columns(normed, rows, hidden, dtype, input, 2 * hidden, 0);
  operations.add_rmsnorm(features, nullptr, floats(weights_->feature_norm()), layer.norm_epsilon,
                         rows, hidden, DType::f32, reinterpret_cast<std::byte*>(normed));
  operations.store_columns(normed, rows, hidden, dtype, input, 2 * hidden, hidden);
}

// As Decoder::compute(): nothing here looks at the batch, or changes the head.
void Eagle3Head::compute(kernels::Operations& operations, bool of_target) {
  const Eagle3Config& config = weights_->config();
  const ModelConfig& layer = config.layer;
  const Weights::Layer& weights = weights_->layer();
  const DType dtype = weights_->compute();
  const kernels::PassRows& part = operations.rows();
  const int rows = part.rows;
  const int hidden = layer.hidden;
  float* const residual =
      (config.norm_before_residual ? feature_normed_ : features_).row(part.first_row);
  float* const delta = delta_.row(part.first_row);
  float* const qkv = qkv_.row(part.first_row);
  std::byte* const normed = normed_.row(part.first_row);
  std::byte* const query = query_.row(part.first_row);
  std::byte* const attended = attended_.row(part.first_row);
  std::byte* const gated = gated_.row(part.first_row);
  const kernels::QkvParams params{layer.heads, layer.kv_heads, layer.head_dim,
                                  nullptr,     nullptr,        layer.norm_epsilon};

  read_input(operations, of_target);
  operations.linear(*weights.qkv, input_.row(part.first_row), rows, qkv);
  operations.rope_and_store(params, rope_view_, 0, qkv, query);
  operations.attention(params, 0, query, attended);
  operations.linear(*weights.output, attended, rows, delta);
  operations.add_rmsnorm(residual, delta, floats(weights.mlp_norm), layer.norm_epsilon, rows,
                         hidden, dtype, normed);
  operations.linear_swiglu(*weights.gate_up, normed, rows, gate_up_.row(part.first_row), dtype,
                           gated);
  operations.linear(*weights.down, gated, rows, delta);
  if (part.logit_rows == 0) return;
  operations.add_rmsnorm(residual, delta, floats(weights_->final_norm()), layer.norm_epsilon, rows,
                         hidden, dtype, normed);
  std::byte* const last = last_.row(part.first_logit_row);
  float* const logits = draft_logits_.row(part.first_logit_row);
  operations.gather_rows(normed, hidden * size_of(dtype), last);
  // The feature of the next row is the layer's outcome before that norm.
  operations.gather_rows(reinterpret_cast<const std::byte*>(residual), hidden * sizeof(float),
                         reinterpret_cast<std::byte*>(last_features_.row(part.first_logit_row)));
  operations.linear(weights_->output(), last, part.logit_rows, logits);
  if (logits_.buffer == nullptr) return;
  operations.scatter_columns(logits, part.logit_rows, config.draft_vocab,
                             reinterpret_cast<const std::int32_t*>(weights_->target_ids()->data()),
                             logits_.row(part.first_logit_row), layer.vocab);
}

}  // namespace paceline::model
