// The tensors of a dense decoder under their Hugging Face names, and the check of a checkpoint
// against them.
#include <array>
#include <set>
#include <utility>

#include "io/checkpoint/json_text.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

using Shape = std::vector<std::int64_t>;

[[noreturn]] void fail(const WeightSource& weights, const std::string& tensor,
                       const std::string& what) {
  throw DataError(weights.location(tensor) + ": tensor " + show_text(tensor) + ": " + what);
}

const TensorView& find_expected(const ModelConfig& config, const WeightSource& weights,
                                const ExpectedTensor& expected) {
  const TensorView* found = weights.find(expected.name);
  if (found == nullptr) {
    const bool head = expected.name == "lm_head.weight" && !config.tied_embeddings;
    fail(weights, expected.name,
         "missing; expected shape " + show_shape(expected.shape) +
             (head ? " (config.json does not say tie_word_embeddings: true)" : ""));
  }
  return *found;
}

// What transformers leaves unused too.
bool is_harmless(const ModelConfig& config, std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") ||
         (config.tied_embeddings && name == "lm_head.weight");
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t intermediate = config.intermediate;
  const std::int64_t queries = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t keys = std::int64_t{config.kv_heads} * config.head_dim;

  std::vector<ExpectedTensor> all;
  const auto add = [&](std::string name, Shape shape) {
    all.push_back({std::move(name), std::move(shape)});
  };
  const auto project = [&](const std::string& name, std::int64_t outputs, std::int64_t inputs,
                           bool bias) {
    add(name + ".weight", {outputs, inputs});
    if (bias) add(name + ".bias", {outputs});
  };

  add("model.embed_tokens.weight", {config.vocab, hidden});
  for (std::int32_t i = 0; i < config.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const std::string attention = layer + "self_attn.";
    const std::string mlp = layer + "mlp.";
    add(layer + "input_layernorm.weight", {hidden});
    project(attention + "q_proj", queries, hidden, config.attention_bias);
    project(attention + "k_proj", keys, hidden, config.attention_bias);
    project(attention + "v_proj", keys, hidden, config.attention_bias);
    if (config.qk_norm) {
      add(attention + "q_norm.weight", {config.head_dim});
      add(attention + "k_norm.weight", {config.head_dim});
    }
    project(attention + "o_proj", hidden, queries, config.output_bias);
    add(layer + "post_attention_layernorm.weight", {hidden});
    project(mlp + "gate_proj", intermediate, hidden, config.mlp_bias);
    project(mlp + "up_proj", intermediate, hidden, config.mlp_bias);
    project(mlp + "down_proj", hidden, intermediate, config.mlp_bias);
  }
  add("model.norm.weight", {hidden});
  if (!config.tied_embeddings) add("lm_head.weight", {config.vocab, hidden});
  return all;
}

void check_tensor_shapes(const ModelConfig& config, const WeightSource& weights) {
  std::set<std::string, std::less<>> names;
  for (ExpectedTensor& expected : expected_tensors(config)) {
    const TensorView& found = find_expected(config, weights, expected);
    if (found.shape != expected.shape) {
      fail(weights, expected.name,
           "expected shape " + show_shape(expected.shape) + " (by config.json), found " +
               show_shape(found.shape));
    }
    names.insert(std::move(expected.name));
  }
  for (const std::string_view name : weights.names()) {
    if (!names.contains(name) && !is_harmless(config, name)) {
      fail(weights, std::string(name),
           "unexpected; by config.json this " + std::string(name_of(config.architecture)) +
               " model of " + std::to_string(config.layers) + " layers has no such tensor");
    }
  }
}

DType stored_dtype(const ModelConfig& config, const WeightSource& weights) {
  std::array<std::size_t, 2> bytes{};  // f32, bf16
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    const TensorView& found = find_expected(config, weights, expected);
    bytes[found.dtype == DType::f32 ? 0 : 1] += found.bytes.size();
  }
  return bytes[0] > bytes[1] ? DType::f32 : DType::bf16;
}

}  // namespace paceline::io
