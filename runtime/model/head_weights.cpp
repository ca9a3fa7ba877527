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
  layer_ = loader.layer(head.layer, whole);
  final_norm_ = loader.uploaded(head.final_norm);
  // The process that packs the output, a matrix of the same height, also checks the embeddings.
  const bool answers = loader.packs();
  output_ = loader.pack({&head.output}, whole, 1);
  const auto* eagle = std::get_if<Eagle3Config>(&config);
  if (eagle != nullptr && !eagle->target_ids.empty())
    target_ids_ = kernels::upload(backend, eagle->target_ids);
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
  return backend.packed_bytes(head.fc.outputs, head.fc.inputs, compute) +
         packed_bytes(backend, head.layer, shard_of(layer_of(config), 0, 1), compute) +
         backend.packed_bytes(head.output.outputs, head.output.inputs, compute);
}

std::uint64_t weight_bytes(const HeadConfig& config, DType compute) {
  const HeadDescription head = describe_head(config);
  return size_of(compute) *
         static_cast<std::uint64_t>(head.fc.elements() + matrix_elements(head.layer) +
                                    added_elements(head.layer, compute) + head.output.elements());
}

}  // namespace paceline::model
