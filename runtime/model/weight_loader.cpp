#include "runtime/model/weight_loader.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/core/error.hpp"
#include "runtime/core/float16.hpp"

namespace paceline::model {

using kernels::MatrixSlice;

void WeightLoader::fail(const std::string& name, const std::string& place,
                        const std::string& what) const {
  throw DataError(
      fmt::format("{}: tensor '{}', {}: {}", source_.location(name), name, place, what));
}

void WeightLoader::fail(const std::string& name, const kernels::UnusableWeight& bad) const {
  fail(name, fmt::format("row {}, column {}", bad.place.row, bad.place.column), bad.what());
}

MatrixSlice WeightLoader::slice_of(const Part& part) const {
  return {&tensor(part.name), part.first_row, part.rows, part.first_column, part.columns};
}

const TensorView& WeightLoader::tensor(const std::string& name) const {
  const TensorView* found = source_.find(name);
  if (found == nullptr) {
    throw DataError(fmt::format("{}: tensor '{}' is missing", source_.location(name), name));
  }
  return *found;
}

void WeightLoader::require_supported(const ModelConfig& config) const {
  if (const std::string why = kernels::unsupported(backend_.info().name, config); !why.empty())
    throw DataError(why);
}

// Parts are neighbouring matrices, so that each process reads its own piece of the files.
bool WeightLoader::packs() const {
  if (shared_.memory.empty()) return true;
  return taken_ * shared_.parts / shared_.memory.size() == static_cast<std::size_t>(shared_.part);
}

std::unique_ptr<kernels::Linear> WeightLoader::pack(std::initializer_list<Part> parts,
                                                    std::span<const float> bias, int segments) {
  return pack_by(parts, [&](std::span<const MatrixSlice> slices, const kernels::PackPlace& place) {
    return backend_.pack(slices, bias, segments, compute_, place);
  });
}

std::unique_ptr<kernels::Linear> WeightLoader::pack_gate_up(std::initializer_list<Part> parts,
                                                            std::span<const float> bias) {
  return pack_by(parts, [&](std::span<const MatrixSlice> slices, const kernels::PackPlace& place) {
    return backend_.pack_gate_up(slices, bias, compute_, place);
  });
}

std::unique_ptr<kernels::Linear> WeightLoader::pack_by(std::initializer_list<Part> parts,
                                                       const Pack& pack) {
  std::vector<MatrixSlice> slices;
  std::int64_t rows = 0;
  for (const Part& part : parts) {
    slices.push_back(slice_of(part));
    rows += part.rows;
  }
  kernels::PackPlace place;
  if (!shared_.memory.empty()) {
    const std::size_t size = backend_.packed_bytes(rows, slices[0].columns, compute_);
    if (taken_ + size > shared_.memory.size())
      throw Error(ExitCode::internal, "memory for shared weights that is too small");
    place = {shared_.memory.subspan(taken_, size), packs()};
    taken_ += size;
  }
  try {
    auto packed = pack(slices, place);
    bytes_ += packed->bytes();
    return packed;
  } catch (const kernels::UnusableWeight& bad) {
    fail(std::data(parts)[bad.place.slice].name, bad);
  }
}

void WeightLoader::require_usable(const Part& part) const {
  try {
    kernels::require_usable(slice_of(part), DType::f32);
  } catch (const kernels::UnusableWeight& bad) {
    fail(part.name, bad);
  }
}

std::vector<float> WeightLoader::vector_of(const std::string& name, std::int64_t first,
                                           std::int64_t count) const {
  const TensorView& view = tensor(name);
  std::vector<float> values(count);
  if (view.dtype == DType::f32) {
    std::memcpy(values.data(), view.bytes.data() + first * sizeof(float), count * sizeof(float));
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, view.bytes.data() + (first + i) * sizeof bits, sizeof bits);
      values[i] = view.dtype == DType::f16
                      ? f16_to_float(bits)
                      : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) continue;
    fail(name, fmt::format("element {}", first + i),
         fmt::format("expected a finite number, found {}", values[i]));
  }
  return values;
}

std::vector<float> WeightLoader::stacked(std::initializer_list<std::string> names,
                                         std::int64_t first, std::int64_t count) const {
  std::vector<float> all;
  for (const std::string& name : names) {
    const std::vector<float> part = vector_of(name, first, count);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Weights::Layer WeightLoader::layer(const std::string& prefix, const ModelConfig& config,
                                   const Shard& shard, std::int64_t attention_width) {
  Weights::Layer layer;
  const std::int64_t d = config.head_dim;
  const std::int64_t hidden = config.hidden;
  const std::int64_t q_first = shard.first_head * d;
  const std::int64_t q_rows = shard.heads * d;
  const std::int64_t kv_first = shard.first_kv_head * d;
  const std::int64_t kv_rows = shard.kv_heads * d;

  layer.attention_norm = uploaded(prefix + "input_layernorm.weight", hidden);
  layer.mlp_norm = uploaded(prefix + "post_attention_layernorm.weight", hidden);
  if (config.qk_norm) {
    layer.q_norm = uploaded(prefix + "self_attn.q_norm.weight", d);
    layer.k_norm = uploaded(prefix + "self_attn.k_norm.weight", d);
  }

  std::vector<float> bias;
  if (config.attention_bias) {
    bias = vector_of(prefix + "self_attn.q_proj.bias", q_first, q_rows);
    const std::vector<float> kv_bias = stacked(
        {prefix + "self_attn.k_proj.bias", prefix + "self_attn.v_proj.bias"}, kv_first, kv_rows);
    bias.insert(bias.end(), kv_bias.begin(), kv_bias.end());
  }
  layer.qkv = pack({{prefix + "self_attn.q_proj.weight", q_first, q_rows, 0, attention_width},
                    {prefix + "self_attn.k_proj.weight", kv_first, kv_rows, 0, attention_width},
                    {prefix + "self_attn.v_proj.weight", kv_first, kv_rows, 0, attention_width}},
                   bias, kernels::kAnySegments);

  layer.output =
      pack({{prefix + "self_attn.o_proj.weight", 0, hidden, q_first, q_rows}}, {}, shard.segments);
  if (config.output_bias) layer.output_bias = uploaded(prefix + "self_attn.o_proj.bias", hidden);

  const std::int64_t first = shard.first_intermediate;
  const std::int64_t width = shard.intermediate;
  bias.clear();
  if (config.mlp_bias) {
    bias = stacked({prefix + "mlp.gate_proj.bias", prefix + "mlp.up_proj.bias"}, first, width);
    layer.down_bias = uploaded(prefix + "mlp.down_proj.bias", hidden);
  }
  layer.gate_up = pack_gate_up({{prefix + "mlp.gate_proj.weight", first, width, 0, hidden},
                                {prefix + "mlp.up_proj.weight", first, width, 0, hidden}},
                               bias);
  layer.down =
      pack({{prefix + "mlp.down_proj.weight", 0, hidden, first, width}}, {}, shard.segments);
  return layer;
}

}  // namespace paceline::model
