#include "app/assembly/cost_conditions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/model/sharding.hpp"

namespace paceline::app {

std::string shape_text(const ModelConfig& model, DType compute) {
  std::string text = fmt::format("{} {} layers, {} wide, {} + {} heads of {}, {} inner, {} tokens",
                                 model.family == nullptr ? "head" : model.family->model_type,
                                 model.layers, model.hidden, model.heads, model.kv_heads,
                                 model.head_dim, model.intermediate, model.vocab);
  if (model.latent) {
    text += fmt::format(", latent attention of {} + {}, values of {}", model.latent->kv_rank,
                        model.latent->rope, model.latent->value_dim);
    if (model.latent->q_rank > 0) text += fmt::format(", queries by {}", model.latent->q_rank);
  }
  if (model.experts) {
    text += fmt::format(", {} of {} experts of {}", model.experts->chosen, model.experts->routed,
                        model.experts->width);
    if (model.experts->shared_width > 0)
      text += fmt::format(" beside a shared one of {}", model.experts->shared_width);
    if (model.dense_layers() > 0)
      text += fmt::format(", not in layers {}", fmt::join(model.experts->dense_layers, ", "));
    if (model::router_parts(model.experts->wide_router, compute) > 1) text += ", routers in fp32";
  }
  return text + fmt::format(", {}", name_of(compute));
}

std::string shape_text(const ConfiguredDrafter& drafter, DType target) {
  if (drafter.model) return shape_text(drafter.model->config, drafter.model->compute);
  if (!drafter.head) return "";
  return shape_text(layer_of(drafter.head->config), target) +
         (mask_token(drafter.head->config) ? ", all tokens at once" : "");
}

std::string difference(const CostTable& profile, const CostConditions& now,
                       std::span<const int> degrees, std::span<const ConfiguredDrafter> drafters,
                       DType target, const char* whose) {
  const CostConditions& then = profile.conditions;
  const auto differs = [&](const char* what, const auto& was, const auto& is) {
    return fmt::format("it was measured with {}: {}; {} has {}", what, was, whose, is);
  };
  if (then.backend != now.backend) return differs("backend", then.backend, now.backend);
  if (then.isa != now.isa) return differs("instruction set", then.isa, now.isa);
  if (degrees.size() != 1 || degrees.front() != then.tp)
    return differs("tensor-parallel degree", then.tp, fmt::format("{}", fmt::join(degrees, ", ")));
  if (then.threads != now.threads) return differs("threads", then.threads, now.threads);
  if (then.model != now.model) return differs("the model", then.model, now.model);
  for (const ConfiguredDrafter& drafter : drafters) {
    const auto known = std::ranges::find(profile.drafters, drafter.name, &DrafterCosts::name);
    if (known == profile.drafters.end())
      return fmt::format("it has no costs of the drafter {}", drafter.name);
    // A drafter keeps its name when its checkpoint is replaced, so shapes are compared too.
    const std::string shape = shape_text(drafter, target);
    if (!known->model.empty() && known->model != shape)
      return fmt::format("drafter {} was measured with the model {}; {} has {}", drafter.name,
                         known->model, whose, shape);
  }
  return "";
}

}  // namespace paceline::app
