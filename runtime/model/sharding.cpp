#include "runtime/model/sharding.hpp"

#include <fmt/format.h>

#include <algorithm>

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

using PackedMatrices = std::vector<std::vector<Projection>>;

void add(const GroupedAttention& attention, const Shard& /*shard*/, PackedMatrices& all) {
  all.push_back({attention.q, attention.k, attention.v});
  all.push_back({attention.output});
}

void add(const LatentAttention& attention, const Shard& shard, PackedMatrices& all) {
  if (attention.q_down) all.push_back({*attention.q_down});
  all.push_back({attention.q});
  all.push_back({attention.kv_down});
  for (std::int32_t head = 0; head < shard.heads; ++head) {
    all.push_back({{attention.kv_up.name, attention.kv_up.inputs, attention.keys()}});
    all.push_back({{attention.kv_up.name, attention.values(), attention.kv_up.inputs}});
  }
  all.push_back({attention.output});
}

void add(const GatedMlp& mlp, PackedMatrices& all) {
  all.push_back({mlp.gate, mlp.up});
  all.push_back({mlp.down});
}

}  // namespace

Shard shard_of(const ModelConfig& config, int rank, int size) {
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
  shard.heads = config.heads / size;
  shard.kv_heads = config.kv_heads / size;
  shard.segments = segments / size;
  const std::int32_t panel = config.vocab >= 64 * size ? 64 : 1;  // so that each rank has some
  const std::int32_t panels = (config.vocab + panel - 1) / panel;
  for (int r = 0; r <= size; ++r) {
    shard.first_vocab.push_back(std::min(config.vocab, panels * r / size * panel));
  }
  return shard;
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

std::vector<std::vector<Projection>> packed_matrices(const LayerDescription& layer,
                                                     const Shard& shard, DType compute) {
  PackedMatrices all;
  std::visit([&](const auto& attention) { add(attention, shard, all); }, layer.attention);
  if (const auto* dense = std::get_if<GatedMlp>(&layer.mlp)) {
    add(*dense, all);
    return all;
  }
  const auto& mlp = std::get<ExpertMlp>(layer.mlp);
  all.insert(all.end(), router_parts(mlp.wide_router, compute), {mlp.router});
  const Range own = shard.range(Cut::even, mlp.experts());
  for (std::int64_t id = own.first; id < own.first + own.count; ++id) add(mlp.expert(id), all);
  if (mlp.shared) add(*mlp.shared, all);
  if (mlp.shared_gate) all.push_back({*mlp.shared_gate});
  return all;
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

std::uint64_t weight_bytes(const ModelConfig& config, DType compute, int size) {
  const ModelDescription model = describe(config);
  const Shard shard = shard_of(config, 0, size);
  std::int64_t elements = model.head.elements() / size;
  for (const LayerDescription& layer : model.layers) {
    for (const std::vector<Projection>& stacked : packed_matrices(layer, shard, compute)) {
      for (const Projection& matrix : stacked)
        elements += shard.outputs(matrix) * shard.inputs(matrix);
    }
  }
  return size_of(compute) * static_cast<std::uint64_t>(elements);
}

std::uint64_t whole_weight_bytes(const ModelConfig& config, DType compute) {
  std::int64_t elements = 0;
  for (const LayerDescription& layer : describe(config).layers)
    elements += whole_elements(layer) + added_elements(layer, compute);
  return size_of(compute) * static_cast<std::uint64_t>(elements);
}

std::uint64_t embedding_bytes(const ModelConfig& config, DType stored, DType compute, int size) {
  const DType copied = kernels::copied_as(stored);
  if (config.tied_embeddings && size_of(copied) <= size_of(compute)) return 0;
  return size_of(copied) * static_cast<std::uint64_t>(config.vocab) * config.hidden / size;
}

}  // namespace paceline::model
