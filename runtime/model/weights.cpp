#include "runtime/model/weights.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string>

#include "runtime/core/error.hpp"

namespace paceline::model {
namespace {

using kernels::MatrixSlice;

/// Of a stored matrix: MatrixSlice by name.
struct Part {
  std::string name;
  std::int64_t first_row, rows;
  std::int64_t first_column, columns;
};

}  // namespace

/// Reads tensors of a source, checks them, and hands them to a backend in one order.
class Weights::Loader {
 public:
  Loader(kernels::Backend& backend, const WeightSource& source, DType compute,
         const SharedPacking& shared)
      : backend_(backend), source_(source), compute_(compute), shared_(shared) {}

  [[nodiscard]] const TensorView& tensor(const std::string& name) const;
  /// Throws DataError on sizes that the backend does not compute.
  [[nodiscard]] std::unique_ptr<kernels::Embedding> embedding(const ModelConfig& config,
                                                              const std::string& name) const;
  /// The parts stacked.
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack(std::initializer_list<Part> parts,
                                                      std::span<const float> bias, int segments);
  /// Whether it is this process that packs what comes next.
  [[nodiscard]] bool packs() const;
  void require_usable(const Part& part) const;
  [[nodiscard]] std::vector<float> vector_of(const std::string& name, std::int64_t first,
                                             std::int64_t count) const;
  [[nodiscard]] std::vector<float> stacked(std::initializer_list<std::string> names,
                                           std::int64_t first, std::int64_t count) const;
  [[nodiscard]] Weights::Vector uploaded(const std::string& name, std::int64_t count) const {
    return kernels::upload(backend_, vector_of(name, 0, count));
  }
  [[nodiscard]] Weights::Layer layer(int index, const ModelConfig& config, const Shard& shard);
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& place,
                         const std::string& what) const {
    throw DataError(
        fmt::format("{}: tensor '{}', {}: {}", source_.location(name), name, place, what));
  }
  [[noreturn]] void fail(const std::string& name, const kernels::UnusableWeight& bad) const {
    fail(name, fmt::format("row {}, column {}", bad.place.row, bad.place.column), bad.what());
  }
  [[nodiscard]] MatrixSlice slice_of(const Part& part) const {
    return {&tensor(part.name), part.first_row, part.rows, part.first_column, part.columns};
  }

  kernels::Backend& backend_;
  const WeightSource& source_;
  DType compute_;
  SharedPacking shared_;
  std::size_t taken_ = 0;  ///< bytes of the shared memory
  std::size_t bytes_ = 0;  ///< of the packed matrices
};

const TensorView& Weights::Loader::tensor(const std::string& name) const {
  const TensorView* found = source_.find(name);
  if (found == nullptr) {
    throw DataError(fmt::format("{}: tensor '{}' is missing", source_.location(name), name));
  }
  return *found;
}

std::unique_ptr<kernels::Embedding> Weights::Loader::embedding(const ModelConfig& config,
                                                               const std::string& name) const {
  if (const std::string why = kernels::unsupported(backend_.info().name, config); !why.empty())
    throw DataError(why);
  return backend_.embedding(tensor(name));
}

// Parts are neighbouring matrices, so that each process reads its own piece of the files.
bool Weights::Loader::packs() const {
  if (shared_.memory.empty()) return true;
  return taken_ * shared_.parts / shared_.memory.size() == static_cast<std::size_t>(shared_.part);
}

std::unique_ptr<kernels::Linear> Weights::Loader::pack(std::initializer_list<Part> parts,
                                                       std::span<const float> bias, int segments) {
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
    auto packed = backend_.pack(slices, bias, segments, compute_, place);
    bytes_ += packed->bytes();
    return packed;
  } catch (const kernels::UnusableWeight& bad) {
    fail(std::data(parts)[bad.place.slice].name, bad);
  }
}

void Weights::Loader::require_usable(const Part& part) const {
  try {
    kernels::require_usable(slice_of(part), DType::f32);
  } catch (const kernels::UnusableWeight& bad) {
    fail(part.name, bad);
  }
}

std::vector<float> Weights::Loader::vector_of(const std::string& name, std::int64_t first,
                                              std::int64_t count) const {
  const TensorView& view = tensor(name);
  std::vector<float> values(count);
  if (view.dtype == DType::f32) {
    std::memcpy(values.data(), view.bytes.data() + first * sizeof(float), count * sizeof(float));
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, view.bytes.data() + (first + i) * sizeof bits, sizeof bits);
      values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) continue;
    fail(name, fmt::format("element {}", first + i),
         fmt::format("expected a finite number, found {}", values[i]));
  }
  return values;
}

std::vector<float> Weights::Loader::stacked(std::initializer_list<std::string> names,
                                            std::int64_t first, std::int64_t count) const {
  std::vector<float> all;
  for (const std::string& name : names) {
    const std::vector<float> part = vector_of(name, first, count);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Weights::Layer Weights::Loader::layer(int index, const ModelConfig& config, const Shard& shard) {
  Weights::Layer layer;
  const std::string prefix = fmt::format("model.layers.{}.", index);
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
  layer.qkv = pack({{prefix + "self_attn.q_proj.weight", q_first, q_rows, 0, hidden},
                    {prefix + "self_attn.k_proj.weight", kv_first, kv_rows, 0, hidden},
                    {prefix + "self_attn.v_proj.weight", kv_first, kv_rows, 0, hidden}},
                   bias, 1);

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
  layer.gate_up = pack({{prefix + "mlp.gate_proj.weight", first, width, 0, hidden},
                        {prefix + "mlp.up_proj.weight", first, width, 0, hidden}},
                       bias, 1);
  layer.down =
      pack({{prefix + "mlp.down_proj.weight", 0, hidden, first, width}}, {}, shard.segments);
  return layer;
}

std::size_t packed_bytes(const kernels::Backend& backend, const ModelConfig& config,
                         const Shard& shard, DType compute) {
  const auto of = [&](std::int64_t n, std::int64_t k) {
    return backend.packed_bytes(n, k, compute);
  };
  const std::int64_t d = config.head_dim;
  const std::size_t layer = of((shard.heads + 2 * shard.kv_heads) * d, config.hidden) +
                            of(config.hidden, shard.heads * d) +
                            of(2 * std::int64_t{shard.intermediate}, config.hidden) +
                            of(config.hidden, shard.intermediate);
  return config.layers * layer + of(shard.vocab(), config.hidden);
}

Weights::Weights(const ModelConfig& config, const WeightSource& source, const Shard& shard,
                 DType compute)
    : config_(config), source_(source), shard_(shard), compute_(compute) {}

Weights::Weights(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
                 const Shard& shard, DType compute, const SharedPacking& shared)
    : Weights(config, source, shard, compute) {
  Loader loader(backend, source, compute, shared);
  while (load_part(loader)) {
  }
}

/// False: that was the last. Between parts the source's pages are let go, so that stored and packed
/// weights are never both in memory.
bool Weights::load_part(Loader& loader) {
  const std::string embedding = "model.embed_tokens.weight";
  if (embedding_ == nullptr) embedding_ = loader.embedding(config_, embedding);
  if (static_cast<int>(layers_.size()) < config_.layers) {
    layers_.push_back(loader.layer(static_cast<int>(layers_.size()), config_, shard_));
    source_.release_pages();
    return true;
  }
  final_norm_ = loader.uploaded("model.norm.weight", config_.hidden);
  // Who packs rows of the head answers for the same rows of the embeddings, which may be the same
  // matrix.
  Part rows{embedding, shard_.first_vocab[shard_.rank], shard_.vocab(), 0, config_.hidden};
  if (!config_.tied_embeddings) {
    if (loader.packs()) loader.require_usable(rows);
    source_.release_pages();
    rows.name = "lm_head.weight";
  }
  head_ = loader.pack({rows}, {}, 1);
  source_.release_pages();
  bytes_ = loader.bytes();
  return false;
}

WeightLoading::WeightLoading(kernels::Backend& backend, const ModelConfig& config,
                             const WeightSource& source, const Shard& shard, DType compute)
    : loader_(std::make_unique<Weights::Loader>(backend, source, compute, SharedPacking{})),
      weights_(new Weights(config, source, shard, compute)) {}

WeightLoading::~WeightLoading() = default;

std::shared_ptr<const Weights> WeightLoading::next() {
  return weights_->load_part(*loader_) ? nullptr : weights_;
}

// Of embeddings, which a backend may have read from the mapped file.
Weights::~Weights() { source_.release_pages(); }

std::shared_ptr<const Weights> load_weights(kernels::Backend& backend, const ModelConfig& config,
                                            const WeightSource& source,
                                            const TensorParallelGroup& group, DType compute) {
  return std::make_shared<const Weights>(backend, config, source,
                                         shard_of(config, group.rank(), group.size()), compute);
}

}  // namespace paceline::model
