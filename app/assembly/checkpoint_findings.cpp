// Finds facts about checkpoints that config.json leaves out or states wrongly, and collects
// warnings for the user. Only rank 0 compares tensors. It tells all ranks the results.
#include "app/assembly/inputs.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/assembly/communicator.hpp"
#include "app/assembly/job.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/model/families/families.hpp"

namespace paceline::app {
namespace {

/// A model of the job: path, description and weights of its checkpoint.
struct Found {
  const std::string& path;
  ModelConfig& config;
  const io::Checkpoint& weights;
};

/// Returns the target and draft models whose weights are there. A plan alone needs no weights.
std::vector<Found> models_of(Inputs& inputs) {
  std::vector<Found> models;
  if (inputs.target.weights != nullptr)
    models.push_back({inputs.config.model.path, inputs.target.config, *inputs.target.weights});
  for (const ConfiguredDrafter& drafter : inputs.drafters) {
    if (drafter.model != nullptr && drafter.model->weights != nullptr)
      models.push_back({drafter.setting.path, drafter.model->config, *drafter.model->weights});
  }
  return models;
}

/// The draft head; null: no drafter is a head.
DraftHead* head_of(Inputs& inputs) {
  for (const ConfiguredDrafter& drafter : inputs.drafters) {
    if (drafter.head != nullptr) return drafter.head.get();
  }
  return nullptr;
}

/// Whether the head stores embeddings that differ from the target's. If the target's weights are
/// absent, embeddings that the head stores count as different.
bool has_other_embeddings(const DraftHead& head, const io::Checkpoint* target) {
  if (!has_own_embeddings(head.config) || target == nullptr) return has_own_embeddings(head.config);
  const std::string name = model::describe_head(head.config).embedding->name + ".weight";
  return !io::has_target_embeddings(*head.weights, name, *target);
}

}  // namespace

void settle_checkpoints(const fabric::MpiEnvironment& mpi, Inputs& inputs) {
  std::vector<std::uint8_t> own_head;  // [models_of()] 1: lm_head differs from tied embeddings
  bool own_embeddings = false;
  DraftHead* head = head_of(inputs);
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    for (const Found& model : models_of(inputs))
      own_head.push_back(io::has_own_head(model.config, model.weights) ? 1 : 0);
    own_embeddings = head != nullptr && has_other_embeddings(*head, inputs.target.weights.get());
  });
  broadcast(mpi, own_head, own_embeddings);
  if (head != nullptr)
    std::visit([&](auto& config) { config.own_embeddings = own_embeddings; }, head->config);
  std::size_t index = 0;
  for (const Found& model : models_of(inputs)) {
    if (own_head[index++] == 0) continue;
    model.config.tied_embeddings = false;
    if (head != nullptr && &model.config == &inputs.target.config)
      std::visit([](auto& config) { config.layer.tied_embeddings = false; }, head->config);
    inputs.warnings.push_back(
        fmt::format("{}: lm_head.weight differs from the embeddings, although config.json says "
                    "tie_word_embeddings: true; lm_head.weight is used, as in transformers 5",
                    model.path));
  }
  const std::string& path = inputs.config.model.path;
  if (inputs.target.weights != nullptr && inputs.target.compute == DType::bf16 &&
      io::stores_f16(inputs.target.config, *inputs.target.weights)) {
    inputs.warnings.push_back(
        fmt::format("{}: weights are stored in fp16 and rounded to bf16; set model.dtype: fp32 to "
                    "compute with them exactly",
                    path));
  }
  if (std::filesystem::exists(std::filesystem::path(path) / "adapter_config.json")) {
    inputs.warnings.push_back(fmt::format(
        "{}: the PEFT adapter beside the weights (adapter_config.json) is not applied", path));
  }
  if (std::holds_alternative<DynamicRopeScaling>(inputs.target.config.rope_scaling)) {
    inputs.warnings.push_back(fmt::format(
        "{}: the context is limited to the {} tokens of max_position_embeddings. Beyond it, "
        "dynamic rotary scaling would let each new token change the KV of all earlier tokens",
        path, inputs.target.config.max_position));
  }
}

}  // namespace paceline::app
