// The check of a checkpoint against the tensors of its model's description.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "io/checkpoint/json_text.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/stored_floats.hpp"

namespace paceline::io {
namespace {

[[noreturn]] void fail(const WeightSource& weights, const std::string& tensor,
                       const std::string& what) {
  throw DataError(weights.location(tensor) + ": tensor " + show_text(tensor) + ": " + what);
}

std::string head_of(const ModelConfig& config) { return describe(config).head.name + ".weight"; }

const TensorView& find_expected(const ModelConfig& config, const WeightSource& weights,
                                const ExpectedTensor& expected) {
  const TensorView* found = weights.find(expected.name);
  if (found == nullptr) {
    const bool untied = !config.tied_embeddings && expected.name == head_of(config);
    fail(weights, expected.name,
         "missing; expected shape " + show_shape(expected.shape) +
             (untied ? " (config.json does not say tie_word_embeddings: true)" : ""));
  }
  return *found;
}

float value_of(const TensorView& tensor, std::size_t i);

void check_shape(const TensorView& found, const WeightSource& weights,
                 const ExpectedTensor& expected, bool fp8) {
  if (found.shape != expected.shape) {
    fail(weights, expected.name,
         "expected shape " + show_shape(expected.shape) + " (by config.json), found " +
             show_shape(found.shape));
  }
  if (found.dtype == DType::f8 && !fp8) {
    fail(weights, expected.name,
         "dtype: expected BF16, F16 or F32, as config.json has no quantization_config, found "
         "F8_E4M3");
  }
}

std::string prefix_of_layer(std::int32_t number) {
  return "model.layers." + std::to_string(number) + ".";
}

// Whether neither this decoder nor transformers uses the tensor. Such a tensor is derived, or of a
// layer after the last, which predicts the token after the next, or of a tower that config.json
// does not describe.
bool is_harmless(const ModelConfig& config, std::string_view name) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  if (config.vision && !config.vision->tower && name.starts_with("visual.")) return true;
  for (std::int32_t next = 0; next < config.next_token_layers; ++next) {
    if (name.starts_with(prefix_of_layer(config.layers + next))) return true;
  }
  return false;
}

float f8_value_of(const TensorView& tensor, std::size_t i) {
  const std::size_t row = i / tensor.shape[1];
  const std::size_t column = i % tensor.shape[1];
  const std::size_t block = row / kScaleBlock * tensor.scales->shape[1] + column / kScaleBlock;
  return f8_weight(std::to_integer<std::uint8_t>(tensor.bytes[i]), value_of(*tensor.scales, block));
}

float value_of(const TensorView& tensor, std::size_t i) {
  if (tensor.dtype == DType::f32) {
    float value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
    return value;
  }
  if (tensor.dtype == DType::f8) return f8_value_of(tensor, i);
  std::uint16_t bits;
  std::memcpy(&bits, tensor.bytes.data() + i * sizeof bits, sizeof bits);
  return tensor.dtype == DType::f16 ? f16_to_float(bits)
                                    : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

bool has_wide_router(const LayerDescription& layer, const WeightSource& weights) {
  const auto* mlp = std::get_if<ExpertMlp>(&layer.mlp);
  return mlp != nullptr && weights.find(mlp->router.name + ".weight")->dtype == DType::f32;
}

}  // namespace

void check_tensor_shapes(const ModelConfig& config, const WeightSource& weights) {
  std::set<std::string, std::less<>> names;
  // A head stored in addition to tied embeddings has their shape.
  ModelConfig stored = config;
  stored.tied_embeddings = config.tied_embeddings && weights.find(head_of(config)) == nullptr;
  for (ExpectedTensor& expected : expected_tensors(describe(stored))) {
    check_shape(find_expected(config, weights, expected), weights, expected, config.fp8);
    names.insert(std::move(expected.name));
  }
  if (config.vision && config.vision->tower) {
    for (ExpectedTensor& expected : expected_tensors(config.family->describe_tower(config))) {
      check_shape(find_expected(config, weights, expected), weights, expected, false);
      names.insert(std::move(expected.name));
    }
  }
  for (const std::string_view name : weights.names()) {
    if (!names.contains(name) && !is_harmless(config, name)) {
      fail(weights, std::string(name),
           "unexpected; by config.json this " + std::string(config.family->model_type) +
               " model of " + std::to_string(config.layers) + " layers has no such tensor");
    }
  }
}

MtpConfig next_token_layer(const ModelConfig& model, const std::string& name) {
  if (model.family->describe_next_token == nullptr || model.next_token_layers < 1) {
    throw DataError(name +
                    ": num_nextn_predict_layers: expected at least 1 layer behind the last, for "
                    "speculation.drafters has method mtp, found none");
  }
  MtpConfig config;
  config.layer = model;
  config.layer.layers = 1;
  config.number = model.layers;
  // This layer follows the last layer, which has experts.
  if (config.layer.experts) config.layer.experts->dense_layers.clear();
  return config;
}

void check_tensor_shapes(MtpConfig& config, const WeightSource& weights) {
  const auto describe_all = [&config] { return config.layer.family->describe_next_token(config); };
  config.own_embeddings = config.own_output = true;
  const HeadDescription all = describe_all();
  config.own_embeddings = weights.find(all.embedding->name + ".weight") != nullptr;
  config.own_output = weights.find(all.output.name + ".weight") != nullptr;
  std::set<std::string, std::less<>> names;
  for (ExpectedTensor& expected : expected_tensors(describe_all())) {
    const TensorView* found = weights.find(expected.name);
    if (found == nullptr)
      fail(weights, expected.name, "missing; expected shape " + show_shape(expected.shape));
    check_shape(*found, weights, expected, config.layer.fp8);
    names.insert(std::move(expected.name));
  }
  const std::string prefix = prefix_of_layer(config.number);
  for (const std::string_view name : weights.names()) {
    if (name.starts_with(prefix) && !names.contains(name) &&
        !name.ends_with(".rotary_emb.inv_freq")) {
      fail(weights, std::string(name),
           "unexpected; by config.json the next-token layer has no such tensor");
    }
  }
}

bool has_own_head(const ModelConfig& config, const WeightSource& weights) {
  if (!config.tied_embeddings) return false;
  const TensorView* own = weights.find(head_of(config));
  if (own == nullptr) return false;
  const std::string embeddings = describe(config).embedding.name + ".weight";
  const bool same = same_values(*own, find_expected(config, weights, {embeddings, {}}));
  weights.release_pages();
  return !same;
}

bool has_target_embeddings(const WeightSource& head, const std::string& embeddings,
                           const WeightSource& target) {
  const TensorView* own = head.find(embeddings);
  const TensorView* given = target.find("model.embed_tokens.weight");
  const bool same = own != nullptr && given != nullptr && same_values(*own, *given);
  head.release_pages();
  target.release_pages();
  return same;
}

bool same_values(const TensorView& a, const TensorView& b) {
  if (a.shape != b.shape) return false;
  if (a.dtype == b.dtype && a.dtype != DType::f8)
    return std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
  for (std::size_t i = 0; i < a.bytes.size() / size_of(a.dtype); ++i) {
    if (value_of(a, i) != value_of(b, i)) return false;
  }
  return true;
}

bool stores_f16(const ModelConfig& config, const WeightSource& weights) {
  const std::vector<ExpectedTensor> all = expected_tensors(describe(config));
  return std::ranges::any_of(all, [&](const ExpectedTensor& expected) {
    return find_expected(config, weights, expected).dtype == DType::f16;
  });
}

bool stores_wide_router(const ModelConfig& config, const WeightSource& weights) {
  return std::ranges::any_of(describe(config).layers, [&](const LayerDescription& layer) {
    return has_wide_router(layer, weights);
  });
}

bool stores_wide_router(const MtpConfig& config, const WeightSource& weights) {
  return has_wide_router(config.layer.family->describe_next_token(config).layers[0], weights);
}

DType stored_dtype(const ModelConfig& config, const WeightSource& weights) {
  std::array<std::size_t, 3> bytes{};  // [DType]; f8 counts as the type that it is converted to
  for (const ExpectedTensor& expected : expected_tensors(describe(config))) {
    const TensorView& found = find_expected(config, weights, expected);
    const bool f8 = found.dtype == DType::f8;
    bytes[static_cast<std::size_t>(f8 ? DType::bf16 : found.dtype)] +=
        found.bytes.size() * (f8 ? 2 : 1);
  }
  // Of equal types the first wins.
  for (const DType type : {DType::bf16, DType::f16}) {
    if (bytes[static_cast<std::size_t>(type)] >= *std::ranges::max_element(bytes)) return type;
  }
  return DType::f32;
}

}  // namespace paceline::io
