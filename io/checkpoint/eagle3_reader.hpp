// An EAGLE-3 or P-EAGLE head's directory as published: config.json and safetensors, with the names
// of SafeAILab or of vLLM.
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/head_config.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::io {

struct Eagle3Checkpoint {
  Eagle3Config config;  ///< complete
  std::unique_ptr<Checkpoint> weights;
};

/// Reads and checks a head. Throws DataError naming file, tensor or key, the expected and the found
/// value, unless every tensor is there with its shape, none is unknown, and `d2t` names each target
/// token at most once. `t2d` is not used, for `d2t` contains it. Sets own_embeddings if the head
/// stores embeddings, even if they equal the target's.
[[nodiscard]] Eagle3Checkpoint load_eagle3(const Families& families, const std::string& directory);

/// Throws DataError unless the head in this directory fits the target: its embeddings (if it has
/// none of its own), its vocabulary, and the layers whose features it reads.
void require_fits(const std::string& directory, const Eagle3Config& head,
                  const ModelConfig& target);

}  // namespace paceline::io
