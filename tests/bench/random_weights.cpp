#include "tests/bench/random_weights.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <thread>

#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/model/families/families.hpp"

namespace paceline::bench {
namespace {

/// Standard deviation of the logits: at temperature 1 a token has some bits of entropy then.
constexpr double kLogitSpread = 4;
constexpr std::size_t kUnit = 1 << 16;  ///< values that a thread makes at a time
constexpr std::uint16_t kOne = 0x3F80;

/// The layer of "model.layers.N.*"; -1: of none.
int layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  int layer = -1;
  if (name.starts_with(kPrefix))
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

double spread_of(const ModelConfig& config, const LaterLayers& later,
                 const ExpectedTensor& tensor) {
  const std::string_view name = tensor.name;
  const double unit = 1 / std::sqrt(static_cast<double>(tensor.shape.back()));
  if (name.starts_with("model.embed_tokens"))
    return config.tied_embeddings ? kLogitSpread * unit : 1;  // tied: it is the head too
  if (name.starts_with("lm_head")) return kLogitSpread * unit;
  if (name.starts_with("visual.patch_embed"))  // stored in more dimensions
    return 1 / std::sqrt(static_cast<double>(config.vision->tower->patch_elements()));
  const bool adds =
      name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");  // to the residual
  if (adds && layer_of(name) >= later.first)
    return later.scale * unit / std::sqrt(static_cast<double>(config.layers - later.first));
  return unit;
}

std::uint32_t key_of(std::string_view name) {  // FNV-1a
  std::uint32_t key = 2166136261U;
  for (const char c : name) key = (key ^ static_cast<unsigned char>(c)) * 16777619U;
  return key;
}

/// Values [first, first + count) of a tensor, uniform. A counter is hashed, so that any may be made
/// by itself; the loop is one that compilers vectorise.
void make_values(std::uint16_t* out, std::uint32_t first, std::size_t count, std::uint32_t key,
                 float spread) {
  const float scale = spread * 1.7320508F / 2147483648.0F;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t x = (first + static_cast<std::uint32_t>(i)) * 0x9E3779B9U;
    x ^= x >> 16;
    x = (x ^ key) * 0x21F0AAADU;
    x ^= x >> 15;
    x *= 0x735A2D97U;
    x ^= x >> 15;
    const float value = static_cast<float>(static_cast<std::int32_t>(x)) * scale;
    out[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  }
}

}  // namespace

RandomWeights::RandomWeights(const ModelConfig& config, const LaterLayers& later)
    : pool_(std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {
  std::vector<ExpectedTensor> all = expected_tensors(describe(config));
  if (config.vision && config.vision->tower)
    std::ranges::move(expected_tensors(config.family->describe_tower(config)),
                      std::back_inserter(all));
  for (ExpectedTensor& expected : all) {
    Tensor tensor;
    tensor.view.dtype = DType::bf16;
    tensor.size = 1;
    for (const std::int64_t extent : expected.shape) tensor.size *= extent;
    tensor.stays = expected.name.starts_with("model.embed_tokens");
    if (expected.shape.size() == 1) {
      tensor.ones = !expected.name.ends_with("bias");
    } else {
      tensor.spread = static_cast<float>(spread_of(config, later, expected));
    }
    tensor.view.shape = std::move(expected.shape);
    tensors_.emplace(std::move(expected.name), std::move(tensor));
  }
}

void RandomWeights::make(const std::string& name, Tensor& tensor) const {
  if (const auto spare = spare_.find(tensor.size); spare != spare_.end()) {
    tensor.values = std::move(spare->second);
    spare_.erase(spare);
  } else {
    tensor.values = std::make_unique_for_overwrite<std::uint16_t[]>(tensor.size);
  }
  std::uint16_t* values = tensor.values.get();
  const std::uint32_t key = key_of(name);
  pool_.for_units(static_cast<int>((tensor.size + kUnit - 1) / kUnit), [&](int, int unit) {
    const std::size_t first = unit * kUnit;
    const std::size_t count = std::min(kUnit, tensor.size - first);
    if (tensor.ones) {
      std::fill_n(values + first, count, kOne);
    } else {
      make_values(values + first, static_cast<std::uint32_t>(first), count, key, tensor.spread);
    }
  });
  tensor.view.bytes = std::as_bytes(std::span(values, tensor.size));
}

const TensorView* RandomWeights::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto at = tensors_.find(name);
  if (at == tensors_.end()) return nullptr;
  if (at->second.values == nullptr) make(at->first, at->second);
  return &at->second.view;
}

std::vector<std::string_view> RandomWeights::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, tensor] : tensors_) names.emplace_back(name);
  return names;
}

std::string RandomWeights::location(std::string_view /*name*/) const { return "random weights"; }

void RandomWeights::release_pages() const {
  const std::lock_guard lock(mutex_);
  for (auto& [name, tensor] : tensors_) {
    if (tensor.stays || tensor.values == nullptr) continue;
    tensor.view.bytes = {};
    spare_.emplace(tensor.size, std::move(tensor.values));
  }
}

}  // namespace paceline::bench
