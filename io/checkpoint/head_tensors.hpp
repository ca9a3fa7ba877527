// The tensors of a published head's directory, checked against the description that its config.json
// makes. Private to this folder.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "runtime/core/head_config.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/model_description.hpp"

namespace paceline::io {

/// Throws DataError naming file, tensor and `what`.
[[noreturn]] void fail_tensor(const Checkpoint& weights, std::string_view tensor,
                              const std::string& what);

/// Throws on a head published as a PyTorch pickle, which runs code when it is read.
void require_safetensors(const std::string& directory);

/// Throws DataError naming tensor, the expected and the found value unless every tensor that `head`
/// describes is there with its shape, but for those of `borrowed`. Returns all expected names.
std::set<std::string, std::less<>> check_head_tensors(
    const HeadDescription& head, const Checkpoint& weights,
    const std::set<std::string, std::less<>>& borrowed = {});

/// Reads PublishedHead::target_ids from `d2t`: target id = draft id + d2t[draft id]. Throws unless
/// it names each target token at most once, or, without it, if the head has fewer tokens.
[[nodiscard]] std::vector<std::int32_t> read_target_ids(const PublishedHead& config,
                                                        const Checkpoint& weights);

/// Throws DataError unless the head in this directory has the target's vocabulary and, where it has
/// no embeddings of its own, its width, and reads layers that the target has. `ids_key`: the key of
/// config.json that names them. Without read_layers no layers are checked.
void require_fits(const std::string& directory, const PublishedHead& head,
                  const ModelConfig& target, const char* ids_key);

}  // namespace paceline::io
