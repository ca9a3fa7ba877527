#include "runtime/model/feature_head.hpp"

#include <bit>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/model/decoder.hpp"
#include "runtime/model/heads.hpp"
#include "runtime/model/rope.hpp"

namespace paceline::model {

FeatureHead::FeatureHead(HeadParts parts)
    : backend_(parts.backend),
      weights_(std::move(parts.weights)),
      embedding_(weights_->embedding() == nullptr
                     ? std::move(parts.embedding)
                     : std::shared_ptr<const kernels::Embedding>(weights_, weights_->embedding())),
      shard_(shard_of(layer(), 0, 1)),
      most_(backend_.padded({parts.max_rows, parts.max_logit_rows})),
      activations_(parts.backend) {
  first_ = backend_.make_recording({weights_->bytes(), true});
  next_ = backend_.make_recording({weights_->bytes(), true});
  rope_ = kernels::upload(backend_, rope_table(layer(), parts.max_position));
  rope_view_ = {floats(rope_), layer().rope_dim(), parts.max_position};

  const std::size_t hidden = layer().hidden;
  const std::size_t element = size_of(weights_->compute());
  features_ = activations_.make<float>(most_.rows, hidden);
  embedded_ = activations_.make<float>(most_.rows, hidden);
  feature_normed_ = activations_.make<float>(most_.rows, hidden);
  delta_ = activations_.make<float>(most_.rows, hidden);
  input_ = activations_.make<std::byte>(most_.rows, 2 * hidden * element);
  normed_ = activations_.make<std::byte>(most_.rows, hidden * element);
  last_ = activations_.make<std::byte>(most_.logit_rows, hidden * element);
  last_features_ = activations_.make<float>(most_.logit_rows, hidden);
  draft_logits_ = activations_.make<float>(most_.logit_rows, draft_vocab(weights_->config()));
  if (weights_->target_ids() == nullptr) return;
  logits_ = activations_.make<float>(most_.logit_rows, layer().vocab);
  // A pass writes the logits of the head's tokens only; those of other tokens stay -infinity.
  const std::vector<float> nothing(layer().vocab, -std::numeric_limits<float>::infinity());
  for (int row = 0; row < most_.logit_rows; ++row)
    backend_.write(reinterpret_cast<std::byte*>(logits_.row(row)),
                   std::as_bytes(std::span(nothing)));
}

kernels::KvShape FeatureHead::kv_shape(int block) const {
  return model::kv_shape(layer(), 1, block, weights_->compute());
}

std::size_t FeatureHead::feature_bytes() const {
  return static_cast<std::size_t>(feature_width(weights_->config())) * size_of(weights_->compute());
}

FeatureHead::Output FeatureHead::forward(std::span<const std::byte> features,
                                         std::span<const TokenId> tokens,
                                         std::span<const kernels::Segment> segments,
                                         std::span<const std::int32_t> logit_rows,
                                         const kernels::KvShape& kv, std::byte* cache) {
  take(features);
  return run(*first_, true, tokens, segments, logit_rows, kv, cache);
}

FeatureHead::Output FeatureHead::forward(std::span<const float> features,
                                         std::span<const TokenId> tokens,
                                         std::span<const kernels::Segment> segments,
                                         std::span<const std::int32_t> logit_rows,
                                         const kernels::KvShape& kv, std::byte* cache) {
  write(features, features_);
  return run(*next_, false, tokens, segments, logit_rows, kv, cache);
}

FeatureHead::Output FeatureHead::run(kernels::Recording& recording, bool of_target,
                                     std::span<const TokenId> tokens,
                                     std::span<const kernels::Segment> segments,
                                     std::span<const std::int32_t> logit_rows,
                                     const kernels::KvShape& kv, std::byte* cache) {
  backend_.begin({tokens, segments, logit_rows, shard_.heads, kv, cache, layer().vocab,
                  rope_view_.max_position});
  backend_.run(recording, [this, of_target](kernels::Operations& operations) {
    compute(operations, of_target);
  });
  return {(logits_.buffer == nullptr ? draft_logits_ : logits_).row(0), last_features_.row(0)};
}

std::vector<float> FeatureHead::floats_of(std::span<const std::byte> values, DType dtype) {
  std::vector<float> floats(values.size() / size_of(dtype));
  if (dtype == DType::f32) {
    std::memcpy(floats.data(), values.data(), values.size());
    return floats;
  }
  for (std::size_t i = 0; i < floats.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, values.data() + i * sizeof bits, sizeof bits);
    floats[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  return floats;
}

void FeatureHead::write(std::span<const float> values, const Activation<float>& to) {
  backend_.write(reinterpret_cast<std::byte*>(to.row(0)), std::as_bytes(values));
}

void FeatureHead::norm(kernels::Operations& operations, float* residual, const float* delta,
                       const Vector& weight, std::byte* out) const {
  operations.add_rmsnorm(residual, delta, floats(weight), layer().norm_epsilon,
                         operations.rows().rows, layer().hidden, weights_->compute(), out);
}

void FeatureHead::norm(kernels::Operations& operations, float* residual, const float* delta,
                       const Vector& weight, float* out) const {
  operations.add_rmsnorm(residual, delta, floats(weight), layer().norm_epsilon,
                         operations.rows().rows, layer().hidden, DType::f32,
                         reinterpret_cast<std::byte*>(out));
}

void FeatureHead::join(kernels::Operations& operations, const Vector& token_norm) {
  const DType dtype = weights_->compute();
  const kernels::PassRows& part = operations.rows();
  const int hidden = layer().hidden;
  float* const embedded = embedded_.row(part.first_row);
  float* const normed = feature_normed_.row(part.first_row);
  std::byte* const input = input_.row(part.first_row);
  operations.embed(*embedding_, embedded);
  norm(operations, embedded, nullptr, token_norm, normed);
  operations.store_columns(normed, part.rows, hidden, dtype, input, 2 * hidden, 0);
  norm(operations, features_.row(part.first_row), nullptr, weights_->feature_norm(), normed);
  operations.store_columns(normed, part.rows, hidden, dtype, input, 2 * hidden, hidden);
}

void FeatureHead::finish(kernels::Operations& operations, const std::byte* normed,
                         const float* outcome) {
  const kernels::PassRows& part = operations.rows();
  const int hidden = layer().hidden;
  std::byte* const last = last_.row(part.first_logit_row);
  float* const logits = draft_logits_.row(part.first_logit_row);
  operations.gather_rows(normed, hidden * size_of(weights_->compute()), last);
  operations.gather_rows(reinterpret_cast<const std::byte*>(outcome), hidden * sizeof(float),
                         reinterpret_cast<std::byte*>(last_features_.row(part.first_logit_row)));
  operations.linear(weights_->output(), last, part.logit_rows, logits);
  if (logits_.buffer == nullptr) return;
  operations.scatter_columns(logits, part.logit_rows, draft_vocab(weights_->config()),
                             reinterpret_cast<const std::int32_t*>(weights_->target_ids()->data()),
                             logits_.row(part.first_logit_row), layer().vocab);
}

std::unique_ptr<FeatureHead> make_head(HeadParts parts) {
  const HeadConfig& config = parts.weights->config();
  if (std::holds_alternative<Eagle3Config>(config)) return make_eagle3_head(std::move(parts));
  if (std::holds_alternative<DFlashConfig>(config)) return make_dflash_head(std::move(parts));
  return make_mtp_head(parts);
}

std::uint64_t row_bytes(const HeadConfig& config, DType compute) {
  const std::uint64_t h = layer_of(config).hidden;
  // Buffers that a decoder does not have: a feature, a normalised feature, and the output of
  // join().
  const std::uint64_t joined = 2 * h * (sizeof(float) + size_of(compute));
  return row_bytes(layer_of(config), compute, 1) + joined +
         std::visit([&](const auto& kind) { return own_row_bytes(kind, compute); }, config);
}

}  // namespace paceline::model
