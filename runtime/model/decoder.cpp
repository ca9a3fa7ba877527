#include "runtime/model/decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/core/error.hpp"
#include "runtime/model/rope.hpp"

namespace paceline::model {

using kernels::MatrixSlice;

namespace {

[[noreturn]] void fail_weight(const WeightSource& source, const std::string& name,
                              const std::string& place, const std::string& what) {
  throw DataError(fmt::format("{}: tensor '{}', {}: {}", source.location(name), name, place, what));
}
[[noreturn]] void fail_weight(const WeightSource& source, const std::string& name,
                              const kernels::UnusableWeight& bad) {
  fail_weight(source, name, fmt::format("row {}, column {}", bad.place.row, bad.place.column),
              bad.what());
}

const float* floats(const std::unique_ptr<kernels::Buffer>& buffer) {
  return buffer == nullptr ? nullptr : reinterpret_cast<const float*>(buffer->data());
}

}  // namespace

Decoder::Decoder(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
                 TensorParallelGroup& group, DType compute, int max_rows, int max_logit_rows,
                 int max_position)
    : backend_(backend),
      config_(config),
      source_(source),
      group_(group),
      compute_(compute),
      shard_(shard_of(config, group.rank(), group.size())) {
  if (const std::string why = kernels::unsupported(backend.info().name, config); !why.empty())
    throw DataError(why);
  const std::string embedding = "model.embed_tokens.weight";
  embedding_ = backend_.embedding(tensor(embedding));
  layers_.resize(config_.layers);
  for (int layer = 0; layer < config_.layers; ++layer) {
    load_layer(layer);
    source_.release_pages();  // so that stored and packed weights are never both in memory
  }
  final_norm_ = uploaded("model.norm.weight", config_.hidden);
  // A rank answers for the embeddings of its own rows of the head, which may be the same matrix.
  Part rows{embedding, shard_.first_vocab[shard_.rank], shard_.vocab(), 0, config_.hidden};
  if (!config_.tied_embeddings) {
    require_usable(rows);
    source_.release_pages();
    rows.name = "lm_head.weight";
  }
  head_ = pack({rows}, {}, 1);
  source_.release_pages();
  recording_ = backend_.make_recording({weight_bytes_, group.size() == 1});

  rope_ = kernels::upload(backend_, rope_table(config_, max_position));
  rope_view_ = {floats(rope_), config_.head_dim, max_position};

  const kernels::PassRows most = backend_.padded({max_rows, max_logit_rows});
  const std::size_t hidden = config_.hidden;
  const std::size_t q_width = static_cast<std::size_t>(shard_.heads) * config_.head_dim;
  const std::size_t qkv_width = q_width + 2UL * shard_.kv_heads * config_.head_dim;
  const std::size_t element = size_of(compute_);
  residual_ = activation<float>(most.rows, hidden);
  delta_ = activation<float>(most.rows, hidden);
  qkv_ = activation<float>(most.rows, qkv_width);
  gate_up_ = activation<float>(most.rows, 2UL * shard_.intermediate);
  logits_ = activation<float>(most.logit_rows, shard_.vocab());
  normed_ = activation<std::byte>(most.rows, hidden * element);
  query_ = activation<std::byte>(most.rows, q_width * element);
  attended_ = activation<std::byte>(most.rows, q_width * element);
  gated_ = activation<std::byte>(most.rows, shard_.intermediate * element);
  last_ = activation<std::byte>(most.logit_rows, hidden * element);
}

kernels::KvShape Decoder::kv_shape(int block) const {
  return {config_.layers, shard_.kv_heads, config_.head_dim, block, compute_};
}

template <class T>
Decoder::Activation<T> Decoder::activation(int rows, std::size_t width) {
  const std::size_t bytes = rows * width * sizeof(T);
  activation_bytes_ += bytes;
  return {backend_.allocate(bytes), width};
}

const TensorView& Decoder::tensor(const std::string& name) const {
  const TensorView* found = source_.find(name);
  if (found == nullptr) {
    throw DataError(fmt::format("{}: tensor '{}' is missing", source_.location(name), name));
  }
  return *found;
}

std::unique_ptr<kernels::Linear> Decoder::pack(std::initializer_list<Part> parts,
                                               std::span<const float> bias, int segments) {
  std::vector<MatrixSlice> slices;
  for (const Part& part : parts) slices.push_back(slice_of(part));
  try {
    auto packed = backend_.pack(slices, bias, segments, compute_);
    weight_bytes_ += packed->bytes();
    return packed;
  } catch (const kernels::UnusableWeight& bad) {
    fail_weight(source_, std::data(parts)[bad.place.slice].name, bad);
  }
}

void Decoder::require_usable(const Part& part) const {
  try {
    kernels::require_usable(slice_of(part), DType::f32);
  } catch (const kernels::UnusableWeight& bad) {
    fail_weight(source_, part.name, bad);
  }
}

MatrixSlice Decoder::slice_of(const Part& part) const {
  return {&tensor(part.name), part.first_row, part.rows, part.first_column, part.columns};
}

std::vector<float> Decoder::vector_of(const std::string& name, std::int64_t first,
                                      std::int64_t count) const {
  const TensorView& view = tensor(name);
  std::vector<float> values(count);
  if (view.dtype == DType::f32) {
    std::memcpy(values.data(), view.bytes.data() + first * sizeof(float), count * sizeof(float));
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, view.bytes.data() + (first + i) * sizeof bits, sizeof bits);
      values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) continue;
    fail_weight(source_, name, fmt::format("element {}", first + i),
                fmt::format("expected a finite number, found {}", values[i]));
  }
  return values;
}

void Decoder::load_layer(int index) {
  Layer& layer = layers_[index];
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const std::int64_t d = config_.head_dim;
  const std::int64_t hidden = config_.hidden;
  const std::int64_t q_first = shard_.first_head * d;
  const std::int64_t q_rows = shard_.heads * d;
  const std::int64_t kv_first = shard_.first_kv_head * d;
  const std::int64_t kv_rows = shard_.kv_heads * d;

  layer.attention_norm = uploaded(prefix + "input_layernorm.weight", hidden);
  layer.mlp_norm = uploaded(prefix + "post_attention_layernorm.weight", hidden);
  if (config_.qk_norm) {
    layer.q_norm = uploaded(prefix + "self_attn.q_norm.weight", d);
    layer.k_norm = uploaded(prefix + "self_attn.k_norm.weight", d);
  }

  std::vector<float> bias;
  if (config_.attention_bias) {
    bias = vector_of(prefix + "self_attn.q_proj.bias", q_first, q_rows);
    const std::vector<float> kv_bias = stacked(
        {prefix + "self_attn.k_proj.bias", prefix + "self_attn.v_proj.bias"}, kv_first, kv_rows);
    bias.insert(bias.end(), kv_bias.begin(), kv_bias.end());
  }
  layer.qkv = pack({{prefix + "self_attn.q_proj.weight", q_first, q_rows, 0, hidden},
                    {prefix + "self_attn.k_proj.weight", kv_first, kv_rows, 0, hidden},
                    {prefix + "self_attn.v_proj.weight", kv_first, kv_rows, 0, hidden}},
                   bias, 1);

  layer.output =
      pack({{prefix + "self_attn.o_proj.weight", 0, hidden, q_first, q_rows}}, {}, shard_.segments);
  if (config_.output_bias) layer.output_bias = uploaded(prefix + "self_attn.o_proj.bias", hidden);

  const std::int64_t first = shard_.first_intermediate;
  const std::int64_t width = shard_.intermediate;
  bias.clear();
  if (config_.mlp_bias) {
    bias = stacked({prefix + "mlp.gate_proj.bias", prefix + "mlp.up_proj.bias"}, first, width);
    layer.down_bias = uploaded(prefix + "mlp.down_proj.bias", hidden);
  }
  layer.gate_up = pack({{prefix + "mlp.gate_proj.weight", first, width, 0, hidden},
                        {prefix + "mlp.up_proj.weight", first, width, 0, hidden}},
                       bias, 1);
  layer.down =
      pack({{prefix + "mlp.down_proj.weight", 0, hidden, first, width}}, {}, shard_.segments);
}

std::vector<float> Decoder::stacked(std::initializer_list<std::string> names, std::int64_t first,
                                    std::int64_t count) const {
  std::vector<float> all;
  for (const std::string& name : names) {
    const std::vector<float> part = vector_of(name, first, count);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::unique_ptr<kernels::Buffer> Decoder::uploaded(const std::string& name,
                                                   std::int64_t count) const {
  return kernels::upload(backend_, vector_of(name, 0, count));
}

const float* Decoder::forward(std::span<const TokenId> tokens,
                              std::span<const kernels::Segment> segments,
                              std::span<const std::int32_t> logit_rows, const kernels::KvShape& kv,
                              std::byte* cache) {
  backend_.begin({tokens, segments, logit_rows, shard_.heads, kv, cache, config_.vocab,
                  rope_view_.max_position});
  backend_.run(*recording_, [this](kernels::Operations& operations) { compute(operations); });
  return logits_.row(0);
}

// The operations of a pass, or of a part of it, which a backend may replay, or call on several
// threads: nothing here looks at the batch, or changes the decoder.
void Decoder::compute(kernels::Operations& operations) {
  const kernels::PassRows& part = operations.rows();
  const int rows = part.rows;
  const int hidden = config_.hidden;
  float* const residual = residual_.row(part.first_row);
  float* const delta = delta_.row(part.first_row);
  float* const qkv = qkv_.row(part.first_row);
  std::byte* const normed = normed_.row(part.first_row);
  std::byte* const query = query_.row(part.first_row);
  std::byte* const attended = attended_.row(part.first_row);
  std::byte* const gated = gated_.row(part.first_row);
  kernels::QkvParams params{shard_.heads, shard_.kv_heads, config_.head_dim,
                            nullptr,      nullptr,         config_.norm_epsilon};

  operations.embed(*embedding_, residual);
  const float* added = nullptr;
  for (int index = 0; index < config_.layers; ++index) {
    const Layer& layer = layers_[index];
    operations.add_rmsnorm(residual, added, floats(layer.attention_norm), config_.norm_epsilon,
                           rows, hidden, compute_, normed);
    operations.linear(*layer.qkv, normed, rows, qkv);
    params.q_norm = floats(layer.q_norm);
    params.k_norm = floats(layer.k_norm);
    operations.rope_and_store(params, rope_view_, index, qkv, query);
    operations.attention(params, index, query, attended);
    operations.linear(*layer.output, attended, rows, delta);
    reduce(operations, layer.output_bias, delta);

    operations.add_rmsnorm(residual, delta, floats(layer.mlp_norm), config_.norm_epsilon, rows,
                           hidden, compute_, normed);
    operations.linear_swiglu(*layer.gate_up, normed, rows, gate_up_.row(part.first_row), compute_,
                             gated);
    operations.linear(*layer.down, gated, rows, delta);
    reduce(operations, layer.down_bias, delta);
    added = delta;
  }
  if (part.logit_rows == 0) return;
  operations.add_rmsnorm(residual, added, floats(final_norm_), config_.norm_epsilon, rows, hidden,
                         compute_, normed);
  std::byte* const last = last_.row(part.first_logit_row);
  operations.gather_rows(normed, hidden * size_of(compute_), last);
  operations.linear(*head_, last, part.logit_rows, logits_.row(part.first_logit_row));
}

// Completes a row-parallel projection: the sum over the ranks' partial sums, then the bias, once.
void Decoder::reduce(kernels::Operations& operations, const Vector& bias, float* delta) {
  const int rows = operations.rows().rows;
  group_.all_reduce_tree({delta, static_cast<std::size_t>(rows) * config_.hidden});
  if (bias != nullptr) operations.add_bias(delta, floats(bias), rows, config_.hidden);
}

}  // namespace paceline::model
