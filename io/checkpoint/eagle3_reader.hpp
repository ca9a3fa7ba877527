// An EAGLE-3 head's directory, as published: config.json and safetensors, by the names of SafeAILab
// or those of vLLM.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/eagle3_config.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::io {

struct Eagle3Checkpoint {
  Eagle3Config config;  ///< complete
  std::unique_ptr<Checkpoint> weights;
};

/// Reads and checks a head. Throws DataError naming file, tensor or key, the expected and the found
/// value, unless every tensor is there with its shape, none is unknown, and `d2t` names each of the
/// target's tokens once at most. `t2d` stays unused, for `d2t` contains it. Sets own_embeddings
/// where it has any, be they the target's or not.
[[nodiscard]] Eagle3Checkpoint load_eagle3(const Families& families, const std::string& directory);

/// Throws DataError unless the head, of the directory of that name, fits this target: its
/// embeddings (where the head has none), its tokens and the features of its layers.
void require_fits(const std::string& directory, const Eagle3Config& head,
                  const ModelConfig& target);

}  // namespace paceline::io
