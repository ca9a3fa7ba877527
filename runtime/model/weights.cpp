#include "runtime/model/weights.hpp"

#include "runtime/model/weight_loader.hpp"

namespace paceline::model {
std::size_t packed_bytes(const kernels::Backend& backend, const LayerDescription& layer,
                         const Shard& shard, DType compute) {
  std::size_t bytes = 0;
  for (const PackedMatrix& matrix : packed_matrices(layer, shard, compute))
    bytes += backend.packed_bytes(matrix.outputs, matrix.inputs, compute);
  return bytes;
}

std::size_t packed_bytes(const kernels::Backend& backend, const ModelConfig& config,
                         const Shard& shard, DType compute) {
  std::size_t bytes = backend.packed_bytes(shard.vocab(), config.hidden, compute);
  for (const LayerDescription& layer : describe(config).layers)
    bytes += packed_bytes(backend, layer, shard, compute);
  return bytes;
}

Weights::Weights(const ModelConfig& config, const WeightSource& source, const Shard& shard,
                 DType compute, bool splits_embeddings)
    : config_(config),
      description_(describe(config)),
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

/// Loads the next part. Returns false after the last one. Between parts it releases the source's
/// pages, so that stored and packed weights are never both in memory as a whole.
bool Weights::load_part(WeightLoader& loader) {
  const WeightLoader::Part all = WeightLoader::whole(description_.embedding);
  const WeightLoader::Part share = WeightLoader::part(description_.embedding, shard_);
  const bool tied = description_.tied_embeddings;
  if (layers_.empty()) {
    loader.require_supported(config_);
    // Tied embeddings are made after the head.
    if (!tied) embedding_ = loader.embedding(embedding_is_whole_ ? all : share);
  }
  if (layers_.size() < description_.layers.size()) {
    layers_.push_back(loader.layer(description_.layers[layers_.size()], shard_));
    source_.release_pages();
    return true;
  }
  final_norm_ = loader.uploaded(description_.final_norm);
  // The process that packs the head also checks the same rows of the embeddings, unless both are
  // one matrix, which packing checks.
  if (!tied) {
    if (loader.packs()) loader.require_usable(share);
    source_.release_pages();
  }
  head_ = loader.pack({tied ? &description_.embedding : &description_.head}, shard_, 1);
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

// A backend may have read rows of the embeddings from the mapped file: releases these pages.
Weights::~Weights() { source_.release_pages(); }

std::shared_ptr<const kernels::Embedding> load_embedding(kernels::Backend& backend,
                                                         const ModelConfig& config,
                                                         const WeightSource& source) {
  return WeightLoader(backend, source, DType::f32)
      .embedding(WeightLoader::whole(describe(config).embedding));
}

}  // namespace paceline::model
