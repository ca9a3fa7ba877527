#include "app/assembly/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "app/assembly/communicator.hpp"
#include "app/assembly/coordination.hpp"
#include "app/assembly/draft_history.hpp"
#include "app/assembly/draft_servers.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/kv_storage.hpp"
#include "io/config/cost_profile.hpp"
#include "io/config/yaml_tree.hpp"
#include "kernels/limits.hpp"
#include "runtime/core/error.hpp"
#include "runtime/model/sharding.hpp"

namespace paceline::app {
namespace {

void require_supported(const std::string& backend, const std::string& path,
                       const ModelConfig& config) {
  const std::string why = kernels::unsupported(backend, config);
  if (!why.empty())
    throw DataError((std::filesystem::path(path) / "config.json").string() + ": " + why);
}

/// Throws DataError if a head's norm over the features of several layers is too wide for a GPU.
void require_supported_norm(const std::string& backend, const std::string& path,
                            const Eagle3Config& head) {
  const std::int64_t width = std::int64_t{head.features()} * head.target_hidden;
  constexpr int most = kernels::cuda::kMaxNormWidth;
  if (backend != "cuda" || head.feature_norm != FeatureNorm::joined || width <= most) return;
  throw DataError(
      fmt::format("{}: norm_before_fc: expected at most {} elements of features on a GPU, found {} "
                  "(engine.backend: cpu takes any)",
                  (std::filesystem::path(path) / "config.json").string(), most, width));
}

/// Throws DataError on a model or head that the backend cannot compute.
void require_supported(const Inputs& inputs, const std::string& backend) {
  require_supported(backend, inputs.config.model.path, inputs.target.config);
  for (const ConfiguredDrafter& drafter : inputs.drafters) {
    const std::string& path = drafter.setting.path;
    if (drafter.model != nullptr) require_supported(backend, path, drafter.model->config);
    if (drafter.head == nullptr) continue;
    const HeadConfig& head = drafter.head->config;
    if (published(head) == nullptr) continue;  // MTP: like the target's layers, checked above
    require_supported(backend, path, layer_of(head));
    if (const auto* eagle = std::get_if<Eagle3Config>(&head))
      require_supported_norm(backend, path, *eagle);
  }
}

/// Reads engine.profile on rank 0 for all ranks. If the profile was measured under other conditions
/// or lacks a drafter, `fault` says so, and the profile is not used, because wrong costs slow a run
/// down. Only rank 0's number of threads is compared. `placement`: the first layout's.
ProfiledCosts read_profile(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                           const Machine& machine, const policy::Placement& placement) {
  ProfiledCosts costs;
  costs.conditions = {machine.backend.name, machine.backend.isa, placement.least_tp(),
                      machine.threads, shape_text(inputs.target.config, inputs.target.compute)};
  if (inputs.attention() == AttentionLayout::data) costs.conditions.model += ", data attention";
  if (!inputs.config.engine.profile) return costs;
  const std::string& path = *inputs.config.engine.profile;
  std::string text;
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    text = io::read_yaml_file(path, "the cost profile");
    costs.profile = io::parse_cost_profile(text, path);
    costs.fault = difference(*costs.profile, costs.conditions, placement.degrees(), inputs.drafters,
                             inputs.target.compute, "this run");
  });
  broadcast(mpi, text, costs.fault);
  if (mpi.rank() != 0) costs.profile = io::parse_cost_profile(text, path);
  // Drop the costs of drafters that this run does not have.
  std::erase_if(costs.profile->drafters, [&](const DrafterCosts& known) {
    return std::none_of(
        inputs.drafters.begin(), inputs.drafters.end(),
        [&](const ConfiguredDrafter& drafter) { return drafter.name == known.name; });
  });
  return costs;
}

/// Lets rank 0 choose speculation for all ranks. If each rank chose, floating-point sums could
/// differ between nodes, and ranks with different layouts would wait for each other forever.
SpeculationChoice shared_choice(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                                const policy::Placement& placement, const ProfiledCosts& costs,
                                const TailGroups& tail) {
  SpeculationChoice choice;
  together(mpi, [&] {
    if (mpi.rank() == 0)
      choice = choose_speculation(inputs, placement, costs, tail, earlier_drafts(inputs.config));
  });
  broadcast(mpi, choice.drafter_ranks, choice.reason, choice.window, choice.freed_window,
            choice.order, choice.acceptance);
  return choice;
}

}  // namespace

policy::Layout lay_out(const Inputs& inputs, const Machine& machine,
                       const std::vector<std::int32_t>& degree, std::optional<int> drafters,
                       const std::string& drafters_reason) {
  policy::LayoutFacts facts;
  facts.ranks = static_cast<int>(machine.ranks.size());
  facts.segments = inputs.target.config.segments();
  facts.weight_bytes = target_bytes(inputs, 1);
  if (!inputs.priced)
    facts.whole_bytes =
        model::whole_weight_bytes(inputs.target.config, inputs.target.compute, inputs.attention());
  facts.weight_bytes += tower_bytes(inputs);
  facts.whole_bytes += tower_bytes(inputs);
  // The degree depends on the memory for a group's own drafters. The costs at this degree may later
  // lead to drafter ranks, which must not change the degree. So this memory is left out only if the
  // user asks for drafter ranks.
  if (inputs.config.layout.drafters.value_or(0) == 0) facts.drafter_bytes = drafter_bytes(inputs);
  facts.sharers = weight_sharers(machine);
  facts.memory_per_rank = machine.backend.memory;
  for (const fabric::RankFacts& rank : machine.ranks) facts.node_of_rank.push_back(rank.node);
  const io::LayoutSection& layout = inputs.config.layout;
  return policy::plan_layout(facts, {layout.verifier_tp.value_or(degree), layout.verifier_groups,
                                     drafters, drafters_reason});
}

Plan complete_plan(const Inputs& inputs, const Machine& machine,
                   const std::vector<std::int32_t>& degree, ProfiledCosts costs,
                   TailGroups tail_groups, SpeculationChoice speculation) {
  Plan plan;
  plan.costs = std::move(costs);
  plan.tail_groups = std::move(tail_groups);
  plan.speculation = std::move(speculation);
  plan.drafters = in_order(inputs.drafters, plan.speculation);
  plan.layout =
      lay_out(inputs, machine, degree, plan.speculation.drafter_ranks, plan.speculation.reason);
  keep_possible(machine, plan.layout.placement, plan.tail_groups);
  if (inputs.attention() == AttentionLayout::data)
    plan.layout.explanation.emplace_back(
        "each rank of a group has only the KV of its own requests (layout.attention)");
  if (!plan.tail_groups.explanation.empty())
    plan.layout.explanation.push_back(plan.tail_groups.explanation);
  require_chains(inputs, plan);
  plan.best_of_n = plan_best_of_n(inputs, plan);
  plan.draft_servers = place_draft_servers(inputs, machine, plan.layout.groups());
  plan.weights = plan_weights(inputs, machine, plan);
  plan.memory = plan_memory(inputs, machine, plan);
  plan.leases = plan_leases(inputs, plan.memory.kv);
  return plan;
}

Plan make_plan(const fabric::MpiEnvironment& mpi, const Inputs& inputs, const Machine& machine) {
  // A first layout fixes the tensor-parallel degree. Costs at this degree decide on speculation.
  policy::Placement first;
  together(mpi, [&] {
    require_supported(inputs, machine.backend.name);
    first = lay_out(inputs, machine, {}, inputs.config.layout.drafters, "").placement;
  });
  const ProfiledCosts costs = read_profile(mpi, inputs, machine, first);
  const TailGroups tail = read_tail_profile(mpi, inputs, machine, first, costs);
  const SpeculationChoice choice = shared_choice(mpi, inputs, first, costs, tail);
  Plan plan;
  together(mpi, [&] {
    plan = complete_plan(inputs, machine, {}, costs, tail, choice);
    if (!machine.elsewhere) check_kv_disk(inputs.config.kv_pool, machine.ranks[mpi.rank()].host);
    if (mpi.rank() == 0) {
      (void)known_lengths(inputs);
      warn_of_no_history(inputs);
    }
  });
  return plan;
}

Plan plan_given(const fabric::MpiEnvironment& mpi, const Inputs& inputs, const Machine& machine) {
  Plan plan;
  together(mpi, [&] {
    require_supported(inputs, machine.backend.name);
    plan = complete_plan(inputs, machine, {}, {}, {}, {});
  });
  return plan;
}

}  // namespace paceline::app
