#include "app/assembly/checkpoint_findings.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/assembly/broadcast.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/setup.hpp"
#include "io/checkpoint/model_config_reader.hpp"

namespace paceline::app {
namespace {

/// A model of the job, and where its checkpoint is.
struct Found {
  const std::string& path;
  ModelConfig& config;
  const io::Checkpoint& weights;
};

/// Models whose weights are there; a plan may lack some.
std::vector<Found> models_of(Setup& setup) {
  std::vector<Found> models;
  if (setup.weights != nullptr)
    models.push_back({setup.config.model.path, setup.model, *setup.weights});
  for (const ConfiguredDrafter& drafter : setup.drafters) {
    if (drafter.model != nullptr && drafter.model->weights != nullptr)
      models.push_back({drafter.setting.path, drafter.model->config, *drafter.model->weights});
  }
  return models;
}

}  // namespace

void settle_checkpoints(const fabric::MpiEnvironment& mpi, Setup& setup) {
  std::vector<std::uint8_t> own_head;  // [models_of()]
  bool own_embeddings = false;
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    for (const Found& model : models_of(setup))
      own_head.push_back(io::has_own_head(model.config, model.weights) ? 1 : 0);
    own_embeddings = has_own_embeddings(setup);
    if (own_embeddings && setup.weights != nullptr)
      own_embeddings = !io::has_target_embeddings(draft_head(setup)->checkpoint, *setup.weights);
  });
  broadcast(mpi, own_head, own_embeddings);
  if (DraftHead* head = draft_head(setup)) head->checkpoint.config.own_embeddings = own_embeddings;
  std::size_t index = 0;
  for (const Found& model : models_of(setup)) {
    if (own_head[index++] == 0) continue;
    model.config.tied_embeddings = false;
    setup.warnings.push_back(fmt::format(
        "{}: lm_head.weight is not the embeddings, though config.json says tie_word_embeddings: "
        "true; the head is used, as in transformers 5",
        model.path));
  }
  const std::string& path = setup.config.model.path;
  if (setup.weights != nullptr && setup.compute == DType::bf16 &&
      io::stores_f16(setup.model, *setup.weights)) {
    setup.warnings.push_back(
        fmt::format("{}: weights are stored in fp16 and rounded to bf16; model.dtype: fp32 "
                    "computes with them exactly",
                    path));
  }
  if (std::filesystem::exists(std::filesystem::path(path) / "adapter_config.json")) {
    setup.warnings.push_back(fmt::format(
        "{}: the PEFT adapter beside the weights (adapter_config.json) is not applied", path));
  }
  if (std::holds_alternative<DynamicRopeScaling>(setup.model.rope_scaling)) {
    setup.warnings.push_back(fmt::format(
        "{}: the context is limited to the {} tokens of max_position_embeddings: past them dynamic "
        "rotary scaling changes with every token what the tokens before it are",
        path, setup.model.max_position));
  }
}

}  // namespace paceline::app
