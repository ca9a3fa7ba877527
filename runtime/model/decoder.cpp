#include "runtime/model/decoder.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/error.hpp"
#include "runtime/model/rope.hpp"

namespace paceline::model {

namespace {

std::int64_t mlp_width(const ModelConfig& config, const Shard& shard) {
  if (!config.has_dense_layers()) return 0;
  return shard.range(Cut::even, config.intermediate).count;
}

std::variant<GroupedAttentionPass, LatentAttentionPass> attention_of(Activations& activations,
                                                                     const Weights& weights,
                                                                     int max_rows) {
  const ModelConfig& config = weights.config();
  if (config.latent) {
    return LatentAttentionPass(activations, config, weights.shard(), max_rows, weights.compute());
  }
  return GroupedAttentionPass(activations, config, weights.shard(), max_rows, weights.compute());
}

}  // namespace

Decoder::Decoder(kernels::Backend& backend, std::shared_ptr<const Weights> weights,
                 TensorParallelGroup& group, int max_rows, int max_logit_rows, int max_position,
                 std::vector<std::int32_t> features, bool gives_routing)
    : backend_(backend),
      weights_(std::move(weights)),
      group_(group),
      feature_layers_(std::move(features)),
      activations_(backend),
      attention_(
          attention_of(activations_, *weights_, backend.padded({max_rows, max_logit_rows}).rows)),
      mlp_(activations_, mlp_width(weights_->config(), weights_->shard()),
           backend.padded({max_rows, max_logit_rows}).rows, weights_->compute()) {
  const ModelConfig& config = weights_->config();
  const Shard& shard = weights_->shard();
  if (shard.rank != group.rank() || shard.size != group.size())
    throw Error(ExitCode::internal, "weights of another rank's share of a model");
  if (shard.attention == AttentionLayout::data) exchange_.emplace(group);
  recording_ = backend_.make_recording(
      {weights_->bytes(), group.size() == 1, group.recordable() && !exchange_});
  rope_ = kernels::upload(backend_, rope_table(config, max_position));
  rope_view_ = {floats(rope_), config.rope_dim(), max_position,
                config.vision ? config.vision->rope_sections : std::array<int, 3>{}};

  const kernels::PassRows most = backend_.padded({max_rows, max_logit_rows});
  if (config.experts)
    experts_.emplace(activations_, config, shard, group, most.rows, weights_->compute(),
                     gives_routing);
  const std::size_t hidden = config.hidden;
  const std::size_t element = size_of(weights_->compute());
  residual_ = activations_.make<float>(most.rows, hidden);
  delta_ = activations_.make<float>(most.rows, hidden);
  logits_ = activations_.make<float>(most.logit_rows, shard.vocab());
  normed_ = activations_.make<std::byte>(most.rows, hidden * element);
  last_ = activations_.make<std::byte>(most.logit_rows, hidden * element);
  if (!feature_layers_.empty())
    features_ = activations_.make<std::byte>(most.rows, feature_layers_.size() * hidden * element);
}

std::uint64_t row_bytes(const ModelConfig& config, DType compute, int size) {
  const Shard shard = shard_of(config, 0, size);
  return config.hidden * (2 * sizeof(float) + size_of(compute)) +
         (config.latent ? LatentAttentionPass::row_bytes(config, shard, compute)
                        : GroupedAttentionPass::row_bytes(config, shard, compute)) +
         GatedMlpPass::row_bytes(mlp_width(config, shard), compute) +
         (config.experts ? ExpertMlpPass::row_bytes(config, shard, compute) : 0);
}

kernels::KvShape Decoder::kv_shape(int block, bool routing) const {
  const Shard attention = weights_->shard().of_attention();
  return model::kv_shape(weights_->config(), attention.size, block, weights_->compute(), routing);
}

const float* Decoder::forward(std::span<const TokenId> tokens,
                              std::span<const kernels::Segment> segments,
                              std::span<const std::int32_t> logit_rows, const kernels::KvShape& kv,
                              std::byte* cache, const kernels::PictureInput& pictures,
                              std::span<const int> owned) {
  std::optional<kernels::RowRange> attended;
  if (exchange_) {
    exchange_->deal(owned);
    attended = exchange_->own();
  }
  backend_.begin({tokens, segments, logit_rows, weights_->shard().heads, kv, cache,
                  weights_->config().vocab, rope_view_.max_position, pictures, attended});
  backend_.run(*recording_, [this](kernels::Operations& operations) { compute(operations); });
  return logits_.row(0);
}

// The operations of a pass, or of a part of it. A backend may replay them, or call this on several
// threads, so nothing here reads the batch or changes the decoder.
void Decoder::compute(kernels::Operations& operations) {
  const ModelConfig& config = weights_->config();
  const DType dtype = weights_->compute();
  const kernels::PassRows& part = operations.rows();
  const int rows = part.rows;
  const int hidden = config.hidden;
  float* const residual = residual_.row(part.first_row);
  float* const delta = delta_.row(part.first_row);
  std::byte* const normed = normed_.row(part.first_row);

  operations.embed(weights_->embedding(), residual);
  if (!weights_->embedding_is_whole())
    group_.all_reduce_tree({residual, static_cast<std::size_t>(rows) * hidden});
  const float* added = nullptr;
  for (int index = 0; index < config.layers; ++index) {
    const LayerWeights& layer = weights_->layers()[index];
    operations.add_rmsnorm(residual, added, floats(layer.attention_norm), config.norm_epsilon, rows,
                           hidden, dtype, normed);
    store_features(operations, index);
    compute_attention(operations, index, delta);

    operations.add_rmsnorm(residual, delta, floats(layer.mlp_norm), config.norm_epsilon, rows,
                           hidden, dtype, normed);
    compute_mlp(operations, index, normed, delta);
    added = delta;
  }
  const bool reads_last = !feature_layers_.empty() && feature_layers_.back() == config.layers;
  if (part.logit_rows == 0 && !reads_last) return;
  operations.add_rmsnorm(residual, added, floats(weights_->final_norm()), config.norm_epsilon, rows,
                         hidden, dtype, normed);
  store_features(operations, config.layers);
  if (part.logit_rows == 0) return;
  std::byte* const last = last_.row(part.first_logit_row);
  operations.gather_rows(normed, hidden * size_of(dtype), last);
  operations.linear(weights_->head(), last, part.logit_rows, logits_.row(part.first_logit_row));
}

// Reads the normed rows. Where ranks have rows of their own, this call completes the rows of all
// ranks.
void Decoder::compute_attention(kernels::Operations& operations, int index, float* delta) {
  const auto& weights = weights_->layers()[index].attention;
  const int first = operations.attended().first_row;
  const std::byte* const input = normed_.row(first);
  const float* bias = nullptr;
  if (auto* latent = std::get_if<LatentAttentionPass>(&attention_)) {
    latent->compute(operations, std::get<LatentWeights>(weights), rope_view_, index, input,
                    delta_.row(first));
  } else {
    const auto& grouped = std::get<AttentionWeights>(weights);
    std::get<GroupedAttentionPass>(attention_)
        .compute(operations, grouped, rope_view_, index, input, delta_.row(first));
    if (grouped.output_bias != nullptr) bias = floats(grouped.output_bias);
  }
  if (exchange_) {
    exchange_->complete(delta, weights_->config().hidden);
  } else {
    sum(operations, delta);
  }
  add_bias(operations, bias, delta);
}

void Decoder::compute_mlp(kernels::Operations& operations, int index, const std::byte* input,
                          float* delta) {
  const LayerWeights& layer = weights_->layers()[index];
  if (const auto* experts = std::get_if<ExpertWeights>(&layer.mlp)) {
    const std::vector<std::int32_t>& dense = weights_->config().experts->dense_layers;
    const auto before = std::lower_bound(dense.begin(), dense.end(), index) - dense.begin();
    experts_->compute(operations, index - static_cast<int>(before), *experts, input, delta);
    return;
  }
  const auto& mlp = std::get<MlpWeights>(layer.mlp);
  mlp_.compute(operations, mlp, input, delta);
  sum(operations, delta);
  add_bias(operations, mlp.down_bias != nullptr ? floats(mlp.down_bias) : nullptr, delta);
}

// Called after the norm before a layer's attention, or after the last norm, which has added the
// previous layer's output to the residual.
void Decoder::store_features(kernels::Operations& operations, int layer) {
  if (features_.buffer == nullptr) return;
  const kernels::PassRows& part = operations.rows();
  const int hidden = weights_->config().hidden;
  const auto count = static_cast<int>(feature_layers_.size());
  for (int i = 0; i < count; ++i) {
    if (feature_layers_[i] != layer) continue;
    operations.store_columns(residual_.row(part.first_row), part.rows, hidden, weights_->compute(),
                             features_.row(part.first_row), count * hidden, i * hidden);
  }
}

// Completes a row-parallel projection: sums the ranks' partial sums. The caller adds the bias once,
// after this.
void Decoder::sum(const kernels::Operations& operations, float* delta) {
  const std::size_t rows = operations.rows().rows;
  group_.all_reduce_tree({delta, rows * weights_->config().hidden});
}

void Decoder::add_bias(kernels::Operations& operations, const float* bias, float* delta) {
  if (bias == nullptr) return;
  operations.add_bias(delta, bias, operations.rows().rows, weights_->config().hidden);
}

}  // namespace paceline::model
