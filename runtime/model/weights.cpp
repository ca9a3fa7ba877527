#include "runtime/model/weights.hpp"

#include <fmt/format.h>

#include <string>

#include "runtime/model/weight_loader.hpp"

namespace paceline::model {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";

WeightLoader::Part embeddings(const ModelConfig& config, std::int64_t first, std::int64_t count) {
  return {kEmbedding, first, count, 0, config.hidden};
}

}  // namespace

std::size_t packed_bytes(const kernels::Backend& backend, const ModelConfig& config,
                         const Shard& shard, DType compute) {
  const auto of = [&](std::int64_t n, std::int64_t k) {
    return backend.packed_bytes(n, k, compute);
  };
  const std::int64_t d = config.head_dim;
  const std::size_t layer = of((shard.heads + 2 * shard.kv_heads) * d, config.hidden) +
                            of(config.hidden, shard.heads * d) +
                            of(2 * std::int64_t{shard.intermediate}, config.hidden) +
                            of(config.hidden, shard.intermediate);
  return config.layers * layer + of(shard.vocab(), config.hidden);
}

Weights::Weights(const ModelConfig& config, const WeightSource& source, const Shard& shard,
                 DType compute, bool splits_embeddings)
    : config_(config),
      source_(source),
      shard_(shard),
      compute_(compute),
      embedding_is_whole_(shard.size == 1 || !splits_embeddings) {}

Weights::Weights(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
                 const Shard& shard, DType compute, const SharedPacking& shared)
    : Weights(config, source, shard, compute, backend.splits_embeddings()) {
  WeightLoader loader(backend, source, compute, shared);
  while (load_part(loader)) {
  }
}

/// False: that was the last. Between parts the source's pages are let go, so that stored and packed
/// weights are never both in memory.
bool Weights::load_part(WeightLoader& loader) {
  const WeightLoader::Part all = embeddings(config_, 0, config_.vocab);
  const WeightLoader::Part share =
      embeddings(config_, shard_.first_vocab[shard_.rank], shard_.vocab());
  const bool tied = config_.tied_embeddings;
  if (layers_.empty()) {
    loader.require_supported(config_);
    // Tied ones wait for the head.
    if (!tied) embedding_ = loader.embedding(embedding_is_whole_ ? all : share);
  }
  if (static_cast<int>(layers_.size()) < config_.layers) {
    layers_.push_back(loader.layer(fmt::format("model.layers.{}.", layers_.size()), config_, shard_,
                                   config_.hidden));
    source_.release_pages();
    return true;
  }
  final_norm_ = loader.uploaded("model.norm.weight", config_.hidden);
  // Who packs rows of the head answers for the same rows of the embeddings, which may be the same
  // matrix.
  WeightLoader::Part head = share;
  if (!tied) {
    if (loader.packs()) loader.require_usable(share);
    source_.release_pages();
    head.name = "lm_head.weight";
  }
  head_ = loader.pack({head}, {}, 1);
  source_.release_pages();
  if (tied) {
    const bool same_rows = shard_.size == 1 || !embedding_is_whole_;
    embedding_ = same_rows ? loader.embedding(share, head_.get()) : loader.embedding(all);
    source_.release_pages();
  }
  bytes_ = loader.bytes();
  return false;
}

WeightLoading::WeightLoading(kernels::Backend& backend, const ModelConfig& config,
                             const WeightSource& source, const Shard& shard, DType compute)
    : loader_(std::make_unique<WeightLoader>(backend, source, compute, SharedPacking{})),
      weights_(new Weights(config, source, shard, compute, backend.splits_embeddings())) {}

WeightLoading::~WeightLoading() = default;

std::shared_ptr<const Weights> WeightLoading::next() {
  return weights_->load_part(*loader_) ? nullptr : weights_;
}

// Of embeddings, which a backend may have read from the mapped file.
Weights::~Weights() { source_.release_pages(); }

std::shared_ptr<const kernels::Embedding> load_embedding(kernels::Backend& backend,
                                                         const ModelConfig& config,
                                                         const WeightSource& source) {
  return WeightLoader(backend, source, DType::f32).embedding(embeddings(config, 0, config.vocab));
}

std::shared_ptr<const Weights> load_weights(kernels::Backend& backend, const ModelConfig& config,
                                            const WeightSource& source,
                                            const TensorParallelGroup& group, DType compute) {
  return std::make_shared<const Weights>(backend, config, source,
                                         shard_of(config, group.rank(), group.size()), compute);
}

}  // namespace paceline::model
