// The tensors of a dense decoder under their Hugging Face names, and the check of a checkpoint
// against them.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "io/checkpoint/json_text.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/float16.hpp"

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
    const bool untied = expected.name == "lm_head.weight" && !config.tied_embeddings;
    fail(weights, expected.name,
         "missing; expected shape " + show_shape(expected.shape) +
             (untied ? " (config.json does not say tie_word_embeddings: true)" : ""));
  }
  return *found;
}

constexpr const char* embeddings = "model.embed_tokens.weight";
constexpr const char* head = "lm_head.weight";

// What transformers leaves unused too.
bool is_harmless(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

float value_of(const TensorView& tensor, std::size_t i) {
  if (tensor.dtype == DType::f32) {
    float value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, tensor.bytes.data() + i * sizeof bits, sizeof bits);
  return tensor.dtype == DType::f16 ? f16_to_float(bits)
                                    : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
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

  add(embeddings, {config.vocab, hidden});
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
  if (!config.tied_embeddings) add(head, {config.vocab, hidden});
  return all;
}

void check_tensor_shapes(const ModelConfig& config, const WeightSource& weights) {
  std::set<std::string, std::less<>> names;
  // A head may be stored beside tied embeddings: of their shape.
  ModelConfig stored = config;
  stored.tied_embeddings = config.tied_embeddings && weights.find(head) == nullptr;
  for (ExpectedTensor& expected : expected_tensors(stored)) {
    const TensorView& found = find_expected(config, weights, expected);
    if (found.shape != expected.shape) {
      fail(weights, expected.name,
           "expected shape " + show_shape(expected.shape) + " (by config.json), found " +
               show_shape(found.shape));
    }
    names.insert(std::move(expected.name));
  }
  for (const std::string_view name : weights.names()) {
    if (!names.contains(name) && !is_harmless(name)) {
      fail(weights, std::string(name),
           "unexpected; by config.json this " + std::string(name_of(config.architecture)) +
               " model of " + std::to_string(config.layers) + " layers has no such tensor");
    }
  }
}

bool has_own_head(const ModelConfig& config, const WeightSource& weights) {
  if (!config.tied_embeddings) return false;
  const TensorView* own = weights.find(head);
  if (own == nullptr) return false;
  const bool same = same_values(*own, find_expected(config, weights, {embeddings, {}}));
  weights.release_pages();
  return !same;
}

bool same_values(const TensorView& a, const TensorView& b) {
  if (a.shape != b.shape) return false;
  if (a.dtype == b.dtype) return std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
  for (std::size_t i = 0; i < a.bytes.size() / size_of(a.dtype); ++i) {
    if (value_of(a, i) != value_of(b, i)) return false;
  }
  return true;
}

bool stores_f16(const ModelConfig& config, const WeightSource& weights) {
  const std::vector<ExpectedTensor> all = expected_tensors(config);
  return std::any_of(all.begin(), all.end(), [&](const ExpectedTensor& expected) {
    return find_expected(config, weights, expected).dtype == DType::f16;
  });
}

DType stored_dtype(const ModelConfig& config, const WeightSource& weights) {
  std::array<std::size_t, 3> bytes{};  // [DType]
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    const TensorView& found = find_expected(config, weights, expected);
    bytes[static_cast<std::size_t>(found.dtype)] += found.bytes.size();
  }
  // Of equals that which is said first.
  for (const DType type : {DType::bf16, DType::f16}) {
    if (bytes[static_cast<std::size_t>(type)] >= *std::max_element(bytes.begin(), bytes.end()))
      return type;
  }
  return DType::f32;
}

}  // namespace paceline::io
