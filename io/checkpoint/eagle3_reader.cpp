#include "io/checkpoint/eagle3_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>

#include "io/checkpoint/json_text.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 2> prefixes{"midlayer.", "layers.0."};
constexpr const char* embeddings = "embed_tokens.weight";
constexpr std::string_view mask_feature = "mask_hidden";

[[noreturn]] void fail(const Checkpoint& weights, std::string_view tensor,
                       const std::string& what) {
  throw DataError(weights.location(tensor) + ": tensor " + show_text(tensor) + ": " + what);
}

// Throws on a head published as a PyTorch pickle, which runs code when it is read.
void require_safetensors(const std::string& directory) {
  const fs::path pickle = fs::path(directory) / "pytorch_model.bin";
  if (!fs::exists(pickle) || fs::exists(fs::path(directory) / "model.safetensors") ||
      fs::exists(fs::path(directory) / "model.safetensors.index.json")) {
    return;
  }
  throw DataError(
      directory +
      ": expected model.safetensors, found pytorch_model.bin; convert it once with python3 -c "
      "'import torch, safetensors.torch as s; t = torch.load(\"pytorch_model.bin\", "
      "weights_only=True); s.save_file({n: (x.bfloat16() if x.is_floating_point() else "
      "x).contiguous() for n, x in t.items()}, \"model.safetensors\")'");
}

std::string find_prefix(const Checkpoint& weights) {
  for (const char* prefix : prefixes) {
    if (weights.shape(std::string(prefix) + "hidden_norm.weight") != nullptr) return prefix;
  }
  fail(weights, std::string(prefixes[0]) + "hidden_norm.weight",
       fmt::format("missing, and under {} too: is this an EAGLE-3 head?", prefixes[1]));
}

/// A vector may be published with ones before its size, as many as there are.
std::vector<std::int64_t> without_ones(std::vector<std::int64_t> shape) {
  const auto first = std::find_if(shape.begin(), shape.end(), [](auto size) { return size != 1; });
  shape.erase(shape.begin(), first);
  return shape;
}

void check_shape(const Checkpoint& weights, const ExpectedTensor& expected) {
  const TensorView* found = weights.find(expected.name);
  if (found == nullptr)
    fail(weights, expected.name, "missing; expected shape " + show_shape(expected.shape));
  if (found->dtype == DType::f8)
    fail(weights, expected.name, "dtype: expected BF16, F16 or F32, found F8_E4M3");
  if (found->shape == expected.shape) return;
  if (expected.name == mask_feature && without_ones(found->shape) == expected.shape) return;
  fail(weights, expected.name,
       "expected shape " + show_shape(expected.shape) + " (by config.json), found " +
           show_shape(found->shape));
}

// Target ids from d2t: target id = draft id + d2t[draft id]. Empty: the ids are the same.
std::vector<std::int32_t> read_target_ids(const Eagle3Config& config, const Checkpoint& weights) {
  const std::optional<std::vector<std::int64_t>> offsets = weights.integers("d2t");
  if (!offsets) {
    if (config.draft_vocab == config.layer.vocab) return {};
    fail(weights, "d2t",
         fmt::format("missing; by config.json the head has {} of {} tokens", config.draft_vocab,
                     config.layer.vocab));
  }
  if (*weights.shape("d2t") != std::vector<std::int64_t>{config.draft_vocab})
    fail(weights, "d2t",
         "expected shape " + show_shape({config.draft_vocab}) + " (draft_vocab_size), found " +
             show_shape(*weights.shape("d2t")));
  std::vector<std::int32_t> ids;
  std::vector<bool> named(config.layer.vocab);
  for (std::int64_t i = 0; i < config.draft_vocab; ++i) {
    const std::int64_t offset = (*offsets)[i];
    const bool fits = offset >= -i && offset < config.layer.vocab - i;
    if (!fits || named[i + offset])
      fail(weights, "d2t",
           fmt::format("element {}: expected the way to one of the {} tokens, to each once, found "
                       "{}",
                       i, config.layer.vocab, offset));
    named[i + offset] = true;
    ids.push_back(static_cast<std::int32_t>(i + offset));
  }
  return ids;
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
  std::set<std::string, std::less<>> names{"d2t", "t2d"};
  for (ExpectedTensor& expected : expected_tensors(families.describe_eagle3(head.config))) {
    check_shape(*head.weights, expected);
    names.insert(std::move(expected.name));
  }
  for (const std::string_view name : head.weights->names()) {
    if (!names.contains(name) && !name.ends_with(".rotary_emb.inv_freq"))
      fail(*head.weights, name,
           name == "mask_hidden"
               ? "unexpected without mask_token_id, pard_token or ptd_token_id in config.json"
               : "unexpected; by config.json this head has no such tensor");
  }
  head.config.target_ids = read_target_ids(head.config, *head.weights);
  return head;
}

void require_fits(const std::string& directory, const Eagle3Config& head,
                  const ModelConfig& target) {
  const std::string file = fs::path(directory) / "config.json";
  const auto require = [&](const char* key, std::int32_t found, const char* what,
                           std::int32_t expected) {
    if (found == expected) return;
    throw DataError(fmt::format("{}: {}: expected {}, the model's {}, found {}", file, key,
                                expected, what, found));
  };
  if (!head.own_embeddings) {
    require("hidden_size", head.layer.hidden, "hidden_size, for its embeddings are the head's",
            target.hidden);
  }
  require("target_hidden_size", head.target_hidden, "hidden_size", target.hidden);
  require("vocab_size", head.layer.vocab, "vocab_size", target.vocab);
  if (!head.read_layers.empty()) {
    if (head.read_layers.back() <= target.layers) return;
    throw DataError(fmt::format(
        "{}: eagle_aux_hidden_state_layer_ids: expected layers of the model, which has {}, found "
        "what enters layer {}",
        file, target.layers, head.read_layers.back()));
  }
  if (target.layers < kLeastTargetLayers) {
    throw DataError(fmt::format(
        "{}: an EAGLE-3 head reads features of three layers; expected a model of at least {} "
        "layers, found {}",
        file, kLeastTargetLayers, target.layers));
  }
}

}  // namespace paceline::io
