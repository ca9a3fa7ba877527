#include "runtime/model/head_weights.hpp"

#include "runtime/model/families/families.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/model/weight_loader.hpp"

namespace paceline::model {

HeadWeights::HeadWeights(kernels::Backend& backend, const HeadConfig& config,
                         const WeightSource& source, DType compute, const SharedPacking& shared)
    : config_(config), compute_(compute) {
  const HeadDescription head = describe_head(config);
  const Shard whole = shard_of(layer_of(config), 0, 1);
  WeightLoader loader(backend, source, compute, shared);
  fc_ = loader.pack({&head.fc}, whole, kernels::kAnySegments);
  for (const Norm& norm : head.fc_norms) fc_norms_.push_back(loader.uploaded(norm));
  if (head.token_norm) token_norm_ = loader.uploaded(*head.token_norm);
  feature_norm_ = loader.uploaded(head.feature_norm);
  for (const LayerDescription& layer : head.layers) layers_.push_back(loader.layer(layer, whole));
  final_norm_ = loader.uploaded(head.final_norm);
  if (head.mask_feature) mask_feature_ = loader.converted(*head.mask_feature);
  // The process that packs the output, a matrix of the same height, also checks the embeddings.
  const bool answers = loader.packs();
  output_ = loader.pack({&head.output}, whole, 1);
  const PublishedHead* own = published(config);
  if (own != nullptr && !own->target_ids.empty())
    target_ids_ = kernels::upload(backend, own->target_ids);
  if (head.embedding) {
    const WeightLoader::Part all = WeightLoader::whole(*head.embedding);
    if (answers) loader.require_usable(all);
    embedding_ = loader.embedding(all);
  }
  bytes_ = loader.bytes();
  source.release_pages();
}

std::size_t packed_bytes(const kernels::Backend& backend, const HeadConfig& config, DType compute) {
  const HeadDescription head = describe_head(config);
  const Shard whole = shard_of(layer_of(config), 0, 1);
  std::size_t bytes = backend.packed_bytes(head.fc.outputs, head.fc.inputs, compute) +
                      backend.packed_bytes(head.output.outputs, head.output.inputs, compute);
  for (const LayerDescription& layer : head.layers)
    bytes += packed_bytes(backend, layer, whole, compute);
  return bytes;
}

std::uint64_t weight_bytes(const HeadConfig& config, DType compute) {
  const HeadDescription head = describe_head(config);
  std::int64_t elements = head.fc.elements() + head.output.elements();
  for (const LayerDescription& layer : head.layers)
    elements += matrix_elements(layer) + added_elements(layer, compute);
  return size_of(compute) * static_cast<std::uint64_t>(elements);
}

}  // namespace paceline::model
