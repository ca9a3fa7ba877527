#include "runtime/core/model_description.hpp"

#include <fmt/format.h>

#include <utility>

#include "runtime/core/model_config.hpp"

namespace paceline {
namespace {

/// Collects tensors in the order in which add() is called for their owners.
class Tensors {
 public:
  void add(const StoredVector& vector) { add(vector.name, {vector.width}); }
  void add(const Norm& norm) { add(norm.name + ".weight", {norm.width}); }
  void add(const Projection& projection) {
    add(projection.name + ".weight", {projection.outputs, projection.inputs});
    if (projection.bias) add(projection.name + ".bias", {projection.outputs});
  }
  template <class T>
  void add(const std::optional<T>& part) {
    if (part) add(*part);
  }
  void add(const GatedMlp& mlp) {
    add(mlp.gate);
    add(mlp.up);
    add(mlp.down);
  }
  void add(const ExpertMlp& mlp) {
    add(mlp.router);
    add(mlp.correction);
    for (std::int64_t id = 0; id < mlp.experts(); ++id) add(mlp.expert(id));
    add(mlp.shared);
    add(mlp.shared_gate);
  }
  void add(const GroupedAttention& attention) {
    add(attention.q);
    add(attention.k);
    add(attention.v);
    add(attention.q_norm);
    add(attention.k_norm);
    add(attention.output);
  }
  void add(const LatentAttention& attention) {
    add(attention.q_down);
    add(attention.q_norm);
    add(attention.q);
    add(attention.kv_down);
    add(attention.kv_norm);
    add(attention.kv_up);
    add(attention.output);
  }
  void add(const LayerDescription& layer) {
    add(layer.attention_norm);
    std::visit([this](const auto& attention) { add(attention); }, layer.attention);
    add(layer.mlp_norm);
    std::visit([this](const auto& mlp) { add(mlp); }, layer.mlp);
  }
  void add(const BiasedNorm& norm) {
    add(norm.weight);
    add(norm.bias);
  }
  void add(const PlainMlp& mlp) {
    add(mlp.up);
    add(mlp.down);
  }
  void add(const TowerLayer& layer) {
    add(layer.attention_norm);
    add(layer.qkv);
    add(layer.output);
    add(layer.mlp_norm);
    std::visit([this](const auto& mlp) { add(mlp); }, layer.mlp);
  }
  void add(const TowerDescription& tower) {
    add(tower.patch.name + ".weight", tower.patch_shape);
    for (const TowerLayer& layer : tower.layers) add(layer);
    add(tower.merger_norm);
    add(tower.merger);
  }
  [[nodiscard]] std::vector<ExpectedTensor> take() { return std::move(all_); }

 private:
  void add(std::string name, std::vector<std::int64_t> shape) {
    all_.push_back({std::move(name), std::move(shape)});
  }

  std::vector<ExpectedTensor> all_;
};

std::int64_t elements(const GroupedAttention& a) {
  return a.q.elements() + a.k.elements() + a.v.elements() + a.output.elements();
}

std::int64_t elements(const LatentAttention& a) {
  return (a.q_down ? a.q_down->elements() : 0) + a.q.elements() + a.kv_down.elements() +
         a.kv_up.elements() + a.output.elements();
}

std::int64_t routed_elements(const LayerDescription& layer) {
  const auto* mlp = std::get_if<ExpertMlp>(&layer.mlp);
  return mlp == nullptr ? 0 : mlp->experts() * mlp->every.elements();
}

std::int64_t mlp_elements(const LayerDescription& layer) {
  if (const auto* dense = std::get_if<GatedMlp>(&layer.mlp)) return dense->elements();
  const auto& mlp = std::get<ExpertMlp>(layer.mlp);
  return mlp.router.elements() + routed_elements(layer) +
         (mlp.shared ? mlp.shared->elements() : 0) +
         (mlp.shared_gate ? mlp.shared_gate->elements() : 0);
}

}  // namespace

GatedMlp ExpertMlp::expert(std::int64_t id) const {
  GatedMlp mlp = every;
  for (Projection* part : {&mlp.gate, &mlp.up, &mlp.down})
    part->name = fmt::format(fmt::runtime(part->name), id);
  return mlp;
}

std::vector<ExpectedTensor> expected_tensors(const ModelDescription& model) {
  Tensors all;
  all.add(model.embedding);
  for (const LayerDescription& layer : model.layers) all.add(layer);
  all.add(model.final_norm);
  if (!model.tied_embeddings) all.add(model.head);
  return all.take();
}

std::vector<ExpectedTensor> expected_tensors(const HeadDescription& head) {
  Tensors all;
  all.add(head.fc);
  for (const Norm& norm : head.fc_norms) all.add(norm);
  all.add(head.token_norm);
  all.add(head.feature_norm);
  for (const LayerDescription& layer : head.layers) all.add(layer);
  all.add(head.final_norm);
  all.add(head.output);
  all.add(head.embedding);
  all.add(head.mask_feature);
  return all.take();
}

std::vector<ExpectedTensor> expected_tensors(const TowerDescription& tower) {
  Tensors all;
  all.add(tower);
  return all.take();
}

std::int64_t matrix_elements(const LayerDescription& layer) {
  return std::visit([](const auto& attention) { return elements(attention); }, layer.attention) +
         mlp_elements(layer);
}

std::int64_t whole_elements(const LayerDescription& layer, AttentionLayout attention) {
  std::int64_t all = 0;
  if (attention == AttentionLayout::data) {
    all += std::visit([](const auto& of) { return elements(of); }, layer.attention);
  } else if (const auto* latent = std::get_if<LatentAttention>(&layer.attention))
    all += (latent->q_down ? latent->q_down->elements() : 0) + latent->kv_down.elements();
  if (const auto* mlp = std::get_if<ExpertMlp>(&layer.mlp))
    all += mlp->router.elements() + (mlp->shared_gate ? mlp->shared_gate->elements() : 0);
  return all;
}

std::int64_t layer_elements(const ModelDescription& model) {
  std::int64_t all = 0;
  for (const LayerDescription& layer : model.layers) all += matrix_elements(layer);
  return all;
}

std::int64_t expert_elements(const ModelDescription& model) {
  std::int64_t all = 0;
  for (const LayerDescription& layer : model.layers) all += routed_elements(layer);
  return all;
}

double stored_weight_bytes(const ModelConfig& config) {
  const ModelDescription model = describe(config);
  const std::int64_t tables = (config.tied_embeddings ? 1 : 2) * model.embedding.elements();
  return static_cast<double>(layer_elements(model) + tables) * config.stored_bytes();
}

double stored_expert_bytes(const ModelConfig& config) {
  return static_cast<double>(expert_elements(describe(config))) * config.stored_bytes();
}

}  // namespace paceline
