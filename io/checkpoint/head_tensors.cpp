#include "io/checkpoint/head_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "io/checkpoint/json_text.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view mask_feature = "mask_hidden";

/// A vector may be published with ones before its size, as many as there are.
std::vector<std::int64_t> without_ones(std::vector<std::int64_t> shape) {
  const auto first = std::find_if(shape.begin(), shape.end(), [](auto size) { return size != 1; });
  shape.erase(shape.begin(), first);
  return shape;
}

void check_shape(const Checkpoint& weights, const ExpectedTensor& expected) {
  const TensorView* found = weights.find(expected.name);
  if (found == nullptr)
    fail_tensor(weights, expected.name, "missing; expected shape " + show_shape(expected.shape));
  if (found->dtype == DType::f8)
    fail_tensor(weights, expected.name, "dtype: expected BF16, F16 or F32, found F8_E4M3");
  if (found->shape == expected.shape) return;
  if (expected.name == mask_feature && without_ones(found->shape) == expected.shape) return;
  fail_tensor(weights, expected.name,
              "expected shape " + show_shape(expected.shape) + " (by config.json), found " +
                  show_shape(found->shape));
}

}  // namespace

void fail_tensor(const Checkpoint& weights, std::string_view tensor, const std::string& what) {
  throw DataError(weights.location(tensor) + ": tensor " + show_text(tensor) + ": " + what);
}

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

std::set<std::string, std::less<>> check_head_tensors(
    const HeadDescription& head, const Checkpoint& weights,
    const std::set<std::string, std::less<>>& borrowed) {
  std::set<std::string, std::less<>> names;
  for (ExpectedTensor& expected : expected_tensors(head)) {
    if (borrowed.contains(expected.name)) continue;
    check_shape(weights, expected);
    names.insert(std::move(expected.name));
  }
  return names;
}

std::vector<std::int32_t> read_target_ids(const PublishedHead& config, const Checkpoint& weights) {
  const std::optional<std::vector<std::int64_t>> offsets = weights.integers("d2t");
  if (!offsets) {
    if (config.draft_vocab == config.layer.vocab) return {};
    fail_tensor(weights, "d2t",
                fmt::format("missing; by config.json the head has {} of {} tokens",
                            config.draft_vocab, config.layer.vocab));
  }
  if (*weights.shape("d2t") != std::vector<std::int64_t>{config.draft_vocab})
    fail_tensor(weights, "d2t",
                "expected shape " + show_shape({config.draft_vocab}) +
                    " (draft_vocab_size), found " + show_shape(*weights.shape("d2t")));
  std::vector<std::int32_t> ids;
  std::vector<bool> named(config.layer.vocab);
  for (std::int64_t i = 0; i < config.draft_vocab; ++i) {
    const std::int64_t offset = (*offsets)[i];
    const bool fits = offset >= -i && offset < config.layer.vocab - i;
    if (!fits || named[i + offset])
      fail_tensor(weights, "d2t",
                  fmt::format("element {}: expected the way to one of the {} tokens, to each once, "
                              "found {}",
                              i, config.layer.vocab, offset));
    named[i + offset] = true;
    ids.push_back(static_cast<std::int32_t>(i + offset));
  }
  return ids;
}

void require_fits(const std::string& directory, const PublishedHead& head,
                  const ModelConfig& target, const char* ids_key) {
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
  if (head.read_layers.empty() || head.read_layers.back() <= target.layers) return;
  throw DataError(
      fmt::format("{}: {}: expected layers of the model, which has {}, found what enters layer {}",
                  file, ids_key, target.layers, head.read_layers.back()));
}

}  // namespace paceline::io
