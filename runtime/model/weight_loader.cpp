#include "runtime/model/weight_loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/source_rows.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/stored_floats.hpp"

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

// Each process packs neighbouring matrices, so that it reads its own piece of the files.
bool WeightLoader::packs() const {
  if (shared_.memory.empty()) return true;
  return taken_ * shared_.parts / shared_.memory.size() == static_cast<std::size_t>(shared_.part);
}

WeightLoader::Part WeightLoader::part(const Projection& matrix, const Shard& shard) {
  const Range rows = shard.range(matrix.output_cut, matrix.outputs);
  const Range columns = shard.range(matrix.input_cut, matrix.inputs);
  return {matrix.name + ".weight", rows.first, rows.count, columns.first, columns.count};
}

std::unique_ptr<kernels::Linear> WeightLoader::pack(
    std::initializer_list<const Projection*> matrices, const Shard& shard, int segments) {
  return pack_by(matrices, shard, false,
                 [&](auto slices, auto bias, const kernels::PackPlace& place) {
                   return backend_.pack(slices, bias, segments, compute_, place);
                 });
}

std::unique_ptr<kernels::Linear> WeightLoader::pack_by(
    std::initializer_list<const Projection*> matrices, const Shard& shard, bool gated,
    const Pack& pack) {
  std::vector<MatrixSlice> slices;
  std::vector<float> bias;
  std::int64_t rows = 0;
  for (const Projection* matrix : matrices) {
    slices.push_back(slice_of(part(*matrix, shard)));
    if (matrix->bias && matrix->input_cut == Cut::whole) {
      const std::vector<float> own =
          vector_of(matrix->name + ".bias", slices.back().first_row, slices.back().rows);
      bias.insert(bias.end(), own.begin(), own.end());
    }
    rows += slices.back().rows;
  }
  const kernels::PackPlace place = take_place(rows, slices[0].columns, gated);
  try {
    auto packed = pack(slices, bias, place);
    bytes_ += packed->bytes();
    return packed;
  } catch (const kernels::UnusableWeight& bad) {
    fail(std::data(matrices)[bad.place.slice]->name + ".weight", bad);
  }
}

kernels::PackPlace WeightLoader::take_place(std::int64_t n, std::int64_t k, bool gated) {
  if (shared_.memory.empty()) {
    if (bank_.empty()) return {};
    const std::size_t size = backend_.expert_bytes(n, k, compute_, gated);
    const kernels::PackPlace place{bank_.first(size)};
    bank_ = bank_.subspan(size);
    return place;
  }
  const std::size_t size = backend_.packed_bytes(n, k, compute_);
  if (taken_ + size > shared_.memory.size())
    throw Error(ExitCode::internal, "memory for shared weights that is too small");
  const kernels::PackPlace place{shared_.memory.subspan(taken_, size), packs()};
  taken_ += size;
  return place;
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

std::vector<std::byte> WeightLoader::converted(const StoredVector& vector) const {
  const std::vector<float> values = vector_of(vector.name, 0, vector.width);
  std::vector<std::byte> bytes(values.size() * size_of(compute_));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    const auto rounded = static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
    if (compute_ == DType::f32) {
      std::memcpy(bytes.data() + i * sizeof bits, &bits, sizeof bits);
    } else {
      std::memcpy(bytes.data() + i * sizeof rounded, &rounded, sizeof rounded);
    }
  }
  return bytes;
}

Vector WeightLoader::summed_bias(const Projection& matrix) const {
  if (!matrix.bias) return nullptr;
  return kernels::upload(backend_, vector_of(matrix.name + ".bias", 0, matrix.outputs));
}

std::unique_ptr<kernels::Linear> WeightLoader::pack_gate_up(const GatedMlp& mlp,
                                                            const Shard& shard) {
  return pack_by({&mlp.gate, &mlp.up}, shard, true,
                 [&](auto slices, auto bias, const kernels::PackPlace& place) {
                   return backend_.pack_gate_up(slices, bias, compute_, place);
                 });
}

AttentionWeights WeightLoader::attention(const GroupedAttention& attention, const Shard& shard) {
  AttentionWeights weights;
  if (attention.q_norm) weights.q_norm = uploaded(*attention.q_norm);
  if (attention.k_norm) weights.k_norm = uploaded(*attention.k_norm);
  weights.qkv = pack({&attention.q, &attention.k, &attention.v}, shard, kernels::kAnySegments);
  weights.output = pack({&attention.output}, shard, shard.segments);
  weights.output_bias = summed_bias(attention.output);
  return weights;
}

std::unique_ptr<kernels::Linear> WeightLoader::pack_flat(const Projection& matrix) {
  TensorView flat = tensor(matrix.name + ".weight");
  flat.shape = {matrix.outputs, matrix.inputs};
  const MatrixSlice slice{&flat, 0, matrix.outputs, 0, matrix.inputs};
  return pack_slice(matrix.name + ".weight", slice);
}

std::unique_ptr<kernels::Linear> WeightLoader::pack_slice(const std::string& name,
                                                          const MatrixSlice& slice) {
  const kernels::PackPlace place = take_place(slice.rows, slice.columns, false);
  try {
    auto packed = backend_.pack({&slice, 1}, {}, kernels::kAnySegments, compute_, place);
    bytes_ += packed->bytes();
    return packed;
  } catch (const kernels::UnusableWeight& bad) {
    fail(name, bad);
  }
}

std::unique_ptr<kernels::Linear> WeightLoader::pack_part(const Part& part) {
  return pack_slice(part.name, slice_of(part));
}

// Transposes in fp32, which represents every stored weight exactly.
std::unique_ptr<kernels::Linear> WeightLoader::pack_transposed(const Part& part) {
  const kernels::PackPlace place = take_place(part.columns, part.rows, false);
  const MatrixSlice slice = slice_of(part);
  std::vector<float> row(part.columns);
  std::vector<float> values(part.rows * part.columns);
  for (std::int64_t r = 0; r < part.rows && place.packs; ++r) {
    kernels::to_floats(kernels::source_row(slice, r), part.columns, row.data());
    for (std::int64_t c = 0; c < part.columns; ++c) values[c * part.rows + r] = row[c];
  }
  const TensorView turned{DType::f32, {part.columns, part.rows}, std::as_bytes(std::span(values))};
  const MatrixSlice all{&turned, 0, part.columns, 0, part.rows};
  try {
    auto packed = backend_.pack({&all, 1}, {}, kernels::kAnySegments, compute_, place);
    bytes_ += packed->bytes();
    return packed;
  } catch (const kernels::UnusableWeight& bad) {
    fail(part.name, kernels::UnusableWeight(
                        {0, part.first_row + bad.place.column, part.first_column + bad.place.row},
                        bad.what()));
  }
}

LatentWeights WeightLoader::attention(const LatentAttention& attention, const Shard& shard) {
  LatentWeights weights;
  if (attention.q_down) {
    weights.q_down = pack({&*attention.q_down}, shard, kernels::kAnySegments);
    weights.q_norm = uploaded(*attention.q_norm);
  }
  weights.q = pack({&attention.q}, shard, kernels::kAnySegments);
  weights.kv_down = pack({&attention.kv_down}, shard, kernels::kAnySegments);
  weights.kv_norm = uploaded(attention.kv_norm);
  const std::string name = attention.kv_up.name + ".weight";
  const std::int64_t rank = attention.kv_up.inputs;
  const std::int64_t rows = attention.keys() + attention.values();
  const Range own = shard.range(Cut::even, attention.heads);
  for (std::int64_t head = own.first; head < own.first + own.count; ++head) {
    const std::int64_t first = head * rows;
    weights.keys.push_back(pack_transposed({name, first, attention.keys(), 0, rank}));
    weights.values.push_back(
        pack_part({name, first + attention.keys(), attention.values(), 0, rank}));
  }
  weights.output = pack({&attention.output}, shard, shard.segments);
  return weights;
}

MlpWeights WeightLoader::mlp(const GatedMlp& mlp, const Shard& shard) {
  MlpWeights weights;
  weights.gate_up = pack_gate_up(mlp, shard);
  weights.down = pack({&mlp.down}, shard, shard.segments);
  weights.down_bias = summed_bias(mlp.down);
  return weights;
}

// Each part is the upper 8 significant bits of the rest that earlier parts leave. fp32 has 24, so
// three parts leave nothing of a normal number.
std::vector<std::unique_ptr<kernels::Linear>> WeightLoader::pack_router(const ExpertMlp& mlp,
                                                                        const Shard& shard) {
  std::vector<std::unique_ptr<kernels::Linear>> parts(router_parts(mlp.wide_router, compute_));
  if (parts.size() == 1) {
    parts[0] = pack({&mlp.router}, shard, kernels::kAnySegments);
    return parts;
  }
  const Part router = whole(mlp.router);
  const MatrixSlice stored = slice_of(router);
  std::vector<kernels::PackPlace> places;
  for (std::size_t i = 0; i < parts.size(); ++i)
    places.push_back(take_place(stored.rows, stored.columns, false));
  // A process that packs no part does not read the values.
  const bool packs_one = std::ranges::any_of(places, &kernels::PackPlace::packs);
  std::vector<float> left(packs_one ? stored.rows * stored.columns : 0);
  if (packs_one) {
    require_usable(router);
    for (std::int64_t row = 0; row < stored.rows; ++row) {
      kernels::to_floats(kernels::source_row(stored, row), stored.columns,
                         left.data() + row * stored.columns);
    }
  }
  std::vector<float> values(stored.rows * stored.columns);
  const TensorView view{
      DType::f32, {stored.rows, stored.columns}, std::as_bytes(std::span(values))};
  const MatrixSlice all{&view, 0, stored.rows, 0, stored.columns};
  for (std::size_t p = 0; p < parts.size(); ++p) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      values[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(left[i]) & 0xFFFF0000U);
      left[i] -= values[i];
    }
    parts[p] = backend_.pack({&all, 1}, {}, kernels::kAnySegments, compute_, places[p]);
    bytes_ += parts[p]->bytes();
  }
  return parts;
}

// All experts lie in one allocation. With one allocation each, a good part of the memory would be
// empty, as a device's pages are 2 MiB.
ExpertWeights WeightLoader::mlp(const ExpertMlp& mlp, const Shard& shard) {
  const Range own = shard.range(Cut::even, mlp.experts());
  ExpertWeights weights;
  weights.router = pack_router(mlp, shard);
  if (mlp.correction) {
    weights.correction =
        kernels::upload(backend_, vector_of(mlp.correction->name, 0, mlp.correction->width));
  }
  kernels::ExpertBank& bank = weights.bank;
  bank.first = static_cast<std::int32_t>(own.first);
  bank.segments = shard.segments;
  const GatedMlp& every = mlp.every;
  const std::size_t of_each =
      backend_.expert_bytes(every.gate.outputs + every.up.outputs, every.gate.inputs, compute_,
                            true) +
      backend_.expert_bytes(every.down.outputs, every.down.inputs, compute_, false);
  if (shared_.memory.empty()) {
    bank.memory = backend_.allocate(own.count * of_each);
    bank_ = {bank.memory->data(), bank.memory->size()};
  }
  for (std::int64_t id = own.first; id < own.first + own.count; ++id) {
    const GatedMlp described = mlp.expert(id);
    kernels::ExpertBank::Expert& expert = bank.experts.emplace_back();
    expert.gate_up = pack_gate_up(described, shard);
    expert.down = pack({&described.down}, shard, 1);
  }
  if (mlp.shared) weights.shared = this->mlp(*mlp.shared, shard);
  if (mlp.shared_gate)
    weights.shared_gate = pack({&*mlp.shared_gate}, shard, kernels::kAnySegments);
  return weights;
}

LayerWeights WeightLoader::layer(const LayerDescription& layer, const Shard& shard) {
  LayerWeights weights;
  weights.attention_norm = uploaded(layer.attention_norm);
  weights.mlp_norm = uploaded(layer.mlp_norm);
  const Shard of_attention = shard.of_attention();
  std::visit([&](const auto& described) { weights.attention = attention(described, of_attention); },
             layer.attention);
  std::visit([&](const auto& described) { weights.mlp = mlp(described, shard); }, layer.mlp);
  return weights;
}

}  // namespace paceline::model
