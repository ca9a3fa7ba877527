#include "runtime/model/sharding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "kernels/source_rows.hpp"
#include "runtime/core/error.hpp"

namespace paceline::model {
namespace {

std::string mlp_sizes(const ModelConfig& config) {
  if (!config.experts) return fmt::format("intermediate size {}", config.intermediate);
  std::string sizes = fmt::format("{} experts", config.experts->routed);
  if (config.experts->shared_width > 0)
    sizes += fmt::format(" beside a shared one of {}", config.experts->shared_width);
  if (config.has_dense_layers())
    sizes += fmt::format(" (intermediate size {} in other layers)", config.intermediate);
  return sizes;
}

/// Collects a rank's shares of matrices.
class PackedMatrices {
 public:
  explicit PackedMatrices(DType compute) : compute_(compute) {}

  void add(const GroupedAttention& attention, const Shard& shard) {
    add({&attention.q, &attention.k, &attention.v}, shard);
    add({&attention.output}, shard);
  }
  void add(const LatentAttention& attention, const Shard& shard) {
    if (attention.q_down) add({&*attention.q_down}, shard);
    add({&attention.q}, shard);
    add({&attention.kv_down}, shard);
    for (std::int32_t head = 0; head < shard.heads; ++head) {
      all_.push_back({attention.kv_up.inputs, attention.keys()});
      all_.push_back({attention.values(), attention.kv_up.inputs});
    }
    add({&attention.output}, shard);
  }
  void add(const GatedMlp& mlp, const Shard& shard) {
    add({&mlp.gate, &mlp.up}, shard);
    add({&mlp.down}, shard);
  }
  void add(const ExpertMlp& mlp, const Shard& shard) {
    for (int part = 0; part < router_parts(mlp.wide_router, compute_); ++part)
      add({&mlp.router}, shard);
    const Range own = shard.range(Cut::even, mlp.experts());
    for (std::int64_t id = own.first; id < own.first + own.count; ++id) add(mlp.expert(id), shard);
    if (mlp.shared) add(*mlp.shared, shard);
    if (mlp.shared_gate) add({&*mlp.shared_gate}, shard);
  }
  [[nodiscard]] std::vector<PackedMatrix> take() { return std::move(all_); }

 private:
  void add(std::initializer_list<const Projection*> stacked, const Shard& shard) {
    PackedMatrix matrix{0, shard.inputs(**stacked.begin())};
    for (const Projection* part : stacked) matrix.outputs += shard.outputs(*part);
    all_.push_back(matrix);
  }

  DType compute_;
  std::vector<PackedMatrix> all_;
};

}  // namespace

Shard shard_of(const ModelConfig& config, int rank, int size, AttentionLayout attention) {
  const std::int32_t segments = config.segments();
  if (size < 1 || segments % size != 0) {
    throw UsageError(
        fmt::format("layout.verifier_tp: a tensor-parallel degree of {} does not divide this "
                    "model: its {} kv heads and {} allow the powers of two up to {}",
                    size, config.kv_heads, mlp_sizes(config), segments));
  }
  Shard shard;
  shard.rank = rank;
  shard.size = size;
  if (size > 1) shard.attention = attention;
  const int sharers = attention_ranks(size, attention);
  shard.heads = config.heads / sharers;
  shard.kv_heads = config.kv_heads / sharers;
  shard.segments = segments / size;
  const std::int32_t panel = config.vocab >= 64 * size ? 64 : 1;  // small: each rank has some
  const std::int32_t panels = (config.vocab + panel - 1) / panel;
  for (int r = 0; r <= size; ++r) {
    shard.first_vocab.push_back(std::min(config.vocab, panels * r / size * panel));
  }
  return shard;
}

Shard Shard::of_attention() const {
  if (attention == AttentionLayout::tensor) return *this;
  Shard whole = *this;
  whole.attention = AttentionLayout::tensor;
  whole.rank = 0;
  whole.size = 1;
  whole.segments = segments * size;
  whole.first_vocab = {0, first_vocab.back()};
  return whole;
}

Range Shard::range(Cut cut, std::int64_t extent) const {
  switch (cut) {
    case Cut::whole:
      return {0, extent};
    case Cut::even:
      return {extent / size * rank, extent / size};
    case Cut::vocab:
      break;
  }
  return {first_vocab[rank], vocab()};
}

std::vector<PackedMatrix> packed_matrices(const LayerDescription& layer, const Shard& shard,
                                          DType compute) {
  PackedMatrices all(compute);
  const Shard of_attention = shard.of_attention();
  std::visit([&](const auto& attention) { all.add(attention, of_attention); }, layer.attention);
  std::visit([&](const auto& mlp) { all.add(mlp, shard); }, layer.mlp);
  return all.take();
}

std::int64_t added_elements(const LayerDescription& layer, DType compute) {
  const auto* mlp = std::get_if<ExpertMlp>(&layer.mlp);
  return mlp == nullptr ? 0
                        : (router_parts(mlp->wide_router, compute) - 1) * mlp->router.elements();
}

kernels::KvShape kv_shape(const ModelConfig& config, int size, int block, DType compute,
                          bool routing) {
  const bool latent = config.latent.has_value();
  return {.layers = config.layers,
          .kv_heads = latent ? 1 : config.kv_heads / size,
          .head_dim = latent ? config.kv_width() : config.head_dim,
          .block = block,
          .dtype = compute,
          .latent_values = latent ? config.latent->kv_rank : 0,
          .routed = routing ? config.routing_width() : 0};
}

std::uint64_t weight_bytes(const ModelConfig& config, DType compute, int size,
                           AttentionLayout attention) {
  const ModelDescription model = describe(config);
  const Shard shard = shard_of(config, 0, size, attention);
  std::int64_t elements = model.head.elements() / size;
  for (const LayerDescription& layer : model.layers) {
    for (const PackedMatrix& matrix : packed_matrices(layer, shard, compute))
      elements += matrix.outputs * matrix.inputs;
  }
  return size_of(compute) * static_cast<std::uint64_t>(elements);
}

std::uint64_t whole_weight_bytes(const ModelConfig& config, DType compute,
                                 AttentionLayout attention) {
  std::int64_t elements = 0;
  for (const LayerDescription& layer : describe(config).layers)
    elements += whole_elements(layer, attention) + added_elements(layer, compute);
  return size_of(compute) * static_cast<std::uint64_t>(elements);
}

std::uint64_t embedding_bytes(const ModelConfig& config, DType stored, DType compute, int size) {
  const DType copied = kernels::copied_as(stored);
  if (config.tied_embeddings && size_of(copied) <= size_of(compute)) return 0;
  return size_of(copied) * static_cast<std::uint64_t>(config.vocab) * config.hidden / size;
}

}  // namespace paceline::model
