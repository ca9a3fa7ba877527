#include "io/checkpoint/eagle3_reader.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <set>
#include <string_view>

#include "io/checkpoint/head_tensors.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::array<const char*, 2> prefixes{"midlayer.", "layers.0."};
constexpr const char* embeddings = "embed_tokens.weight";

std::string find_prefix(const Checkpoint& weights) {
  for (const char* prefix : prefixes) {
    if (weights.shape(std::string(prefix) + "hidden_norm.weight") != nullptr) return prefix;
  }
  fail_tensor(weights, std::string(prefixes[0]) + "hidden_norm.weight",
              fmt::format("missing, and under {} too: is this an EAGLE-3 head?", prefixes[1]));
}

}  // namespace

Eagle3Checkpoint load_eagle3(const Families& families, const std::string& directory) {
  require_safetensors(directory);
  Eagle3Checkpoint head;
  head.config = load_eagle3_config(directory);
  head.weights = std::make_unique<Checkpoint>(directory);
  head.config.prefix = find_prefix(*head.weights);
  head.config.own_embeddings = head.weights->shape(embeddings) != nullptr;
  if (head.weights->shape(head.config.prefix + "self_attn.q_norm.weight") != nullptr)
    head.config.layer.qk_norm = true;
  std::set<std::string, std::less<>> names =
      check_head_tensors(families.describe_eagle3(head.config), *head.weights);
  names.insert({"d2t", "t2d"});
  for (const std::string_view name : head.weights->names()) {
    if (!names.contains(name) && !name.ends_with(".rotary_emb.inv_freq"))
      fail_tensor(*head.weights, name,
                  name == "mask_hidden"
                      ? "unexpected without mask_token_id, pard_token or ptd_token_id in "
                        "config.json"
                      : "unexpected; by config.json this head has no such tensor");
  }
  head.config.target_ids = read_target_ids(head.config, *head.weights);
  return head;
}

void require_fits(const std::string& directory, const Eagle3Config& head,
                  const ModelConfig& target) {
  require_fits(directory, head, target, "eagle_aux_hidden_state_layer_ids");
  if (!head.read_layers.empty() || target.layers >= kLeastTargetLayers) return;
  throw DataError(fmt::format(
      "{}: an EAGLE-3 head reads features of three layers; expected a model of at least {} "
      "layers, found {}",
      (std::filesystem::path(directory) / "config.json").string(), kLeastTargetLayers,
      target.layers));
}

}  // namespace paceline::io
