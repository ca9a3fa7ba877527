#include "runtime/model/eagle3_head.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/model/decoder.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/model/weight_loader.hpp"

namespace paceline::model {
Eagle3Weights::Eagle3Weights(kernels::Backend& backend, const Eagle3Config& config,
                             const WeightSource& source, DType compute, const SharedPacking& shared)
    : config_(config), compute_(compute) {
  const HeadDescription head = describe_eagle3(config);
  const Shard whole = shard_of(config.layer, 0, 1);
  WeightLoader loader(backend, source, compute, shared);
  fc_ = loader.pack({&head.fc}, whole, kernels::kAnySegments);
  for (const Norm& norm : head.fc_norms) fc_norms_.push_back(loader.uploaded(norm));
  feature_norm_ = loader.uploaded(head.feature_norm);
  layer_ = loader.layer(head.layer, whole);
  final_norm_ = loader.uploaded(head.final_norm);
  // Who packs the output, which is as tall, answers for the embeddings.
  const bool answers = loader.packs();
  output_ = loader.pack({&head.output}, whole, 1);
  if (!config.target_ids.empty()) target_ids_ = kernels::upload(backend, config.target_ids);
  if (head.embedding) {
    const WeightLoader::Part all = WeightLoader::whole(*head.embedding);
    if (answers) loader.require_usable(all);
    embedding_ = loader.embedding(all);
  }
  bytes_ = loader.bytes();
  source.release_pages();
}

std::size_t packed_bytes(const kernels::Backend& backend, const Eagle3Config& config,
                         DType compute) {
  const HeadDescription head = describe_eagle3(config);
  return backend.packed_bytes(head.fc.outputs, head.fc.inputs, compute) +
         packed_bytes(backend, head.layer, shard_of(config.layer, 0, 1), compute) +
         backend.packed_bytes(head.output.outputs, head.output.inputs, compute);
}

std::uint64_t weight_bytes(const Eagle3Config& config, DType compute) {
  const HeadDescription head = describe_eagle3(config);
  return size_of(compute) *
         static_cast<std::uint64_t>(head.fc.elements() + matrix_elements(head.layer) +
                                    head.output.elements());
}

std::uint64_t row_bytes(const Eagle3Config& config, DType compute) {
  const std::uint64_t h = config.layer.hidden;
  const std::uint64_t features =
      static_cast<std::uint64_t>(config.features()) * config.target_hidden;
  const std::uint64_t normed = config.feature_norm == FeatureNorm::none ? 0
                               : config.feature_norm == FeatureNorm::joined
                                   ? features
                                   : features + config.target_hidden;
  return row_bytes(config.layer, compute, 1) + features * size_of(compute) +
         normed * sizeof(float) + 2 * h * (sizeof(float) + size_of(compute));
}

Eagle3Head::Eagle3Head(kernels::Backend& backend, std::shared_ptr<const Eagle3Weights> weights,
                       std::shared_ptr<const kernels::Embedding> embedding, int max_rows,
                       int max_logit_rows, int max_position)
    : backend_(backend),
      weights_(std::move(weights)),
      embedding_(weights_->embedding() == nullptr
                     ? std::move(embedding)
                     : std::shared_ptr<const kernels::Embedding>(weights_, weights_->embedding())),
      shard_(shard_of(weights_->config().layer, 0, 1)),
      activations_(backend),
      attention_(activations_, weights_->config().layer, shard_,
                 backend.padded({max_rows, max_logit_rows}).rows, weights_->compute()),
      mlp_(activations_, weights_->config().layer.intermediate,
           backend.padded({max_rows, max_logit_rows}).rows, weights_->compute()) {
  const Eagle3Config& config = weights_->config();
  const ModelConfig& layer = config.layer;
  first_ = backend_.make_recording({weights_->bytes(), true});
  next_ = backend_.make_recording({weights_->bytes(), true});
  rope_ = kernels::upload(backend_, rope_table(layer, max_position));
  rope_view_ = {floats(rope_), layer.head_dim, max_position};

  const kernels::PassRows most = backend_.padded({max_rows, max_logit_rows});
  const std::size_t hidden = layer.hidden;
  const std::size_t element = size_of(weights_->compute());
  target_features_ = activations_.make<std::byte>(most.rows, feature_bytes());
  for (int i = 0; i < static_cast<int>(weights_->fc_norms().size()); ++i) {
    const bool joined = config.feature_norm == FeatureNorm::joined;
    stored_features_.push_back(activations_.make<float>(
        most.rows, (joined ? config.features() : 1) * config.target_hidden));
  }
  if (config.feature_norm == FeatureNorm::each)
    part_normed_ = activations_.make<float>(most.rows, config.target_hidden);
  features_ = activations_.make<float>(most.rows, hidden);
  embedded_ = activations_.make<float>(most.rows, hidden);
  feature_normed_ = activations_.make<float>(most.rows, hidden);
  delta_ = activations_.make<float>(most.rows, hidden);
  input_ = activations_.make<std::byte>(most.rows, 2 * hidden * element);
  normed_ = activations_.make<std::byte>(most.rows, hidden * element);
  last_ = activations_.make<std::byte>(most.logit_rows, hidden * element);
  last_features_ = activations_.make<float>(most.logit_rows, hidden);
  draft_logits_ = activations_.make<float>(most.logit_rows, config.draft_vocab);
  if (config.target_ids.empty()) return;
  logits_ = activations_.make<float>(most.logit_rows, layer.vocab);
  // What a pass writes is the head's tokens alone; the others are out of the question for ever.
  const std::vector<float> nothing(layer.vocab, -std::numeric_limits<float>::infinity());
  for (int row = 0; row < most.logit_rows; ++row)
    backend_.write(reinterpret_cast<std::byte*>(logits_.row(row)),
                   std::as_bytes(std::span(nothing)));
}

kernels::KvShape Eagle3Head::kv_shape(int block) const {
  return model::kv_shape(weights_->config().layer, 1, block, weights_->compute());
}

std::size_t Eagle3Head::feature_bytes() const {
  const Eagle3Config& config = weights_->config();
  return static_cast<std::size_t>(config.features()) * config.target_hidden *
         size_of(weights_->compute());
}

Eagle3Head::Output Eagle3Head::forward(std::span<const std::byte> features,
                                       std::span<const TokenId> tokens,
                                       std::span<const kernels::Segment> segments,
                                       std::span<const std::int32_t> logit_rows,
                                       const kernels::KvShape& kv, std::byte* cache) {
  if (stored_features_.empty()) {
    backend_.write(target_features_.row(0), features);
  } else {
    write_as_floats(features);
  }
  return run(*first_, true, tokens, segments, logit_rows, kv, cache);
}

// What is normalised is read in fp32.
void Eagle3Head::write_as_floats(std::span<const std::byte> features) {
  const DType dtype = weights_->compute();
  const std::size_t rows = features.size() / feature_bytes();
  const std::size_t all = feature_bytes() / size_of(dtype);
  std::vector<float> values(rows * all);
  if (dtype == DType::f32) {
    std::memcpy(values.data(), features.data(), features.size());
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, features.data() + i * sizeof bits, sizeof bits);
      values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
  }
  std::vector<float> part;
  for (std::size_t i = 0; i < stored_features_.size(); ++i) {
    const std::size_t width = stored_features_[i].width;
    part.resize(rows * width);
    for (std::size_t row = 0; row < rows; ++row)
      std::copy_n(values.data() + row * all + i * width, width, part.data() + row * width);
    backend_.write(reinterpret_cast<std::byte*>(stored_features_[i].row(0)),
                   std::as_bytes(std::span(part)));
  }
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

// By the weights of each layer's features, or of all of them.
void Eagle3Head::norm_features(kernels::Operations& operations) {
  const Eagle3Config& config = weights_->config();
  const DType dtype = weights_->compute();
  const float epsilon = config.layer.norm_epsilon;
  const kernels::PassRows& part = operations.rows();
  const int width = config.target_hidden;
  const int all = config.features() * width;
  std::byte* const out = target_features_.row(part.first_row);
  if (config.feature_norm == FeatureNorm::joined) {
    operations.add_rmsnorm(stored_features_[0].row(part.first_row), nullptr,
                           floats(weights_->fc_norms()[0]), epsilon, part.rows, all, dtype, out);
    return;
  }
  float* const normed = part_normed_.row(part.first_row);
  for (std::size_t i = 0; i < stored_features_.size(); ++i) {
    operations.add_rmsnorm(stored_features_[i].row(part.first_row), nullptr,
                           floats(weights_->fc_norms()[i]), epsilon, part.rows, width, DType::f32,
                           reinterpret_cast<std::byte*>(normed));
    operations.store_columns(normed, part.rows, width, dtype, out, all,
                             static_cast<int>(i) * width);
  }
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
  if (of_target) {
    if (!stored_features_.empty()) norm_features(operations);
    operations.linear(weights_->fc(), target_features_.row(part.first_row), rows, features);
  }
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
  const LayerWeights& weights = weights_->layer();
  const DType dtype = weights_->compute();
  const kernels::PassRows& part = operations.rows();
  const int rows = part.rows;
  const int hidden = layer.hidden;
  float* const residual =
      (config.norm_before_residual ? feature_normed_ : features_).row(part.first_row);
  float* const delta = delta_.row(part.first_row);
  std::byte* const normed = normed_.row(part.first_row);

  read_input(operations, of_target);
  attention_.compute(operations, std::get<AttentionWeights>(weights.attention), rope_view_, 0,
                     input_.row(part.first_row), delta);
  operations.add_rmsnorm(residual, delta, floats(weights.mlp_norm), layer.norm_epsilon, rows,
                         hidden, dtype, normed);
  mlp_.compute(operations, std::get<MlpWeights>(weights.mlp), normed, delta);
  if (part.logit_rows == 0) return;
  // The feature of the next row is the layer's outcome before that norm, or after it.
  const float* outcome = residual;
  if (config.norm_output) {
    float* const after = embedded_.row(part.first_row);  // which has been read
    operations.add_rmsnorm(residual, delta, floats(weights_->final_norm()), layer.norm_epsilon,
                           rows, hidden, DType::f32, reinterpret_cast<std::byte*>(after));
    operations.store_columns(after, rows, hidden, dtype, normed, hidden, 0);
    outcome = after;
  } else {
    operations.add_rmsnorm(residual, delta, floats(weights_->final_norm()), layer.norm_epsilon,
                           rows, hidden, dtype, normed);
  }
  std::byte* const last = last_.row(part.first_logit_row);
  float* const logits = draft_logits_.row(part.first_logit_row);
  operations.gather_rows(normed, hidden * size_of(dtype), last);
  operations.gather_rows(reinterpret_cast<const std::byte*>(outcome), hidden * sizeof(float),
                         reinterpret_cast<std::byte*>(last_features_.row(part.first_logit_row)));
  operations.linear(weights_->output(), last, part.logit_rows, logits);
  if (logits_.buffer == nullptr) return;
  operations.scatter_columns(logits, part.logit_rows, config.draft_vocab,
                             reinterpret_cast<const std::int32_t*>(weights_->target_ids()->data()),
                             logits_.row(part.first_logit_row), layer.vocab);
}

}  // namespace paceline::model
