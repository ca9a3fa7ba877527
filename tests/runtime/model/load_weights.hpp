// A rank's share of a model's weights at once.
#pragma once

#include <memory>

#include "runtime/model/weights.hpp"

namespace paceline::model {

inline std::shared_ptr<const Weights> load_weights(
    kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
    const TensorParallelGroup& group, DType compute,
    AttentionLayout attention = AttentionLayout::tensor) {
  return std::make_shared<const Weights>(
      backend, config, source, shard_of(config, group.rank(), group.size(), attention), compute);
}

}  // namespace paceline::model
