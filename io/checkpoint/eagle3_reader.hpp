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

/// Reads and checks a head. Throws DataError naming file, tensor or key, what was expected and what
/// was found: unless every tensor is there with its shape, none is unknown, and `d2t` names each of
/// the target's tokens once at most. `t2d` is left unused, for `d2t` says all that it does.
/// own_embeddings: there are some, be they the target's or not.
[[nodiscard]] Eagle3Checkpoint load_eagle3(const Families& families, const std::string& directory);

/// Throws DataError unless the head, of the directory of that name, reads what this target gives:
/// its embeddings, where it has none, its tokens and the features of its layers.
void require_fits(const std::string& directory, const Eagle3Config& head,
                  const ModelConfig& target);

/// Whether the head's embeddings hold what the model's do, by which it then embeds. Reads both,
/// until they differ: one rank's work, not every rank's.
[[nodiscard]] bool has_target_embeddings(const Eagle3Checkpoint& head, const WeightSource& target);

/// The type in which the head's embeddings are stored, of which it has some.
[[nodiscard]] DType embedding_dtype(const Eagle3Checkpoint& head);

}  // namespace paceline::io
