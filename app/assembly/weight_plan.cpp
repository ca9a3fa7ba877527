#include "app/assembly/weight_plan.hpp"

#include <algorithm>
#include <variant>

#include "app/assembly/drafters.hpp"
#include "app/assembly/plan.hpp"
#include "runtime/core/role.hpp"
#include "runtime/model/head_weights.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/model/tower.hpp"

namespace paceline::app {

using policy::WeightCopy;
using policy::WeightsId;

namespace {

std::uint64_t bytes_of(const Inputs& inputs, const Plan& plan, const WeightsId& id) {
  if (id.tower) return tower_bytes(inputs);
  if (!id.drafter) return target_bytes(inputs, id.tp);
  const PlannedDrafter& drafter = plan.drafters[*id.drafter];
  return drafter_bytes(inputs, drafter.model, drafter.head);
}

/// [ranks] Each rank's memory, without weights yet.
std::vector<policy::WeightHolder> holders(const Machine& machine) {
  std::vector<policy::WeightHolder> all;
  for (const fabric::RankFacts& fact : machine.ranks) {
    const bool shares = fact.shares_memory != 0 && !machine.backend.on_device();
    all.push_back({fact.node, fact.numa_nodes, shares, {}});
  }
  return all;
}

/// Adds the weights, except vision towers, that each rank needs now or, on a host, in later roles.
void add_weights(const Inputs& inputs, const Machine& machine, const Plan& plan,
                 std::vector<policy::WeightHolder>& all) {
  const policy::Placement& placement = plan.layout.placement;
  const auto add_draft = [&](int rank, std::int32_t d) {
    const policy::WeightsId id{d};
    std::vector<policy::WeightsId>& has = all[rank].weights;
    if (std::ranges::find(has, id) == has.end()) has.push_back(id);
  };
  const auto add_drafts = [&](int rank, Role role) {
    for (const std::int32_t d : own_drafters(plan, role)) {
      if (plan.drafters[d].model != nullptr || plan.drafters[d].head != nullptr) add_draft(rank, d);
    }
  };
  if (inputs.config.test.shuffles(io::Shuffle::roles) && !machine.backend.on_device()) {
    const std::vector<int> degrees = placement.degrees();
    for (int rank = 0; rank < placement.ranks; ++rank) {
      for (const int tp : degrees) {
        if ((rank / tp + 1) * tp <= placement.ranks)
          all[rank].weights.push_back({{}, tp, rank % tp});
      }
      add_drafts(rank, Role::verifier);
      add_drafts(rank, Role::drafter);
    }
    return;
  }
  for (const auto& [leader, tp] : placement.groups) {
    for (int share = 0; share < tp; ++share) all[leader + share].weights.push_back({{}, tp, share});
    add_drafts(leader, Role::verifier);
  }
  for (const policy::DrafterPlace& drafter : placement.drafters)
    add_drafts(drafter.rank, Role::drafter);
  // On a host, ranks have their weights for larger groups from the start, so that joining loads
  // nothing. On a device, ranks load these weights when groups join.
  for (const auto& [tp, costs] : plan.tail_groups.costs) {
    for (int rank = 0; rank < placement.ranks && !machine.backend.on_device(); ++rank) {
      if (joins(machine, placement, rank, tp)) all[rank].weights.push_back({{}, tp, rank % tp});
    }
  }
  if (!plan.best_of_n.tail_methods.empty() && !machine.backend.on_device()) {
    // The ranks of rank 0's group are left out, because they keep their roles.
    for (int rank = placement.groups.front().tp; rank < placement.ranks; ++rank) {
      for (const std::int32_t d : plan.best_of_n.tail_methods) add_draft(rank, d);
    }
  }
}

/// Copies of weights in the whole job. If prompts have pictures, each rank with a share of the
/// target also has the vision tower.
std::vector<WeightCopy> weight_copies(const Inputs& inputs, const Machine& machine,
                                      const Plan& plan) {
  std::vector<policy::WeightHolder> all = holders(machine);
  add_weights(inputs, machine, plan, all);
  if (inputs.sizes.largest_picture > 0) {
    const auto of_target = [](const WeightsId& id) { return !id.drafter; };
    for (policy::WeightHolder& holder : all) {
      if (std::ranges::any_of(holder.weights, of_target)) holder.weights.push_back({.tower = true});
    }
  }
  return policy::weight_copies(all);
}

std::uint64_t most_bytes(const Inputs& inputs, const Plan& plan,
                         const std::vector<WeightCopy>& copies) {
  std::vector<std::uint64_t> bytes(plan.layout.placement.ranks, 0);
  for (const WeightCopy& copy : copies) {
    for (const int rank : copy.ranks)
      bytes[rank] += bytes_of(inputs, plan, copy.id) / copy.ranks.size();
  }
  return *std::ranges::max_element(bytes);
}

}  // namespace

const DraftHead* head_of(const Plan& plan, const WeightsId& id) {
  return id.drafter ? plan.drafters[*id.drafter].head : nullptr;
}

bool lends(const Inputs& inputs, const Plan& plan, const WeightCopy& copy) {
  return copy.id.drafter && head_of(plan, copy.id) == nullptr && inputs.config.elastic() &&
         (plan.weights.on_device || (copy.ranks.size() == 1 && !plan.best_of_n.roles_change));
}

std::uint64_t target_bytes(const Inputs& inputs, int tp) {
  if (!inputs.priced) {
    return model::weight_bytes(inputs.target.config, inputs.target.compute, tp, inputs.attention());
  }
  const io::SimulationSection& simulation = inputs.config.simulation;
  const ModelConfig& priced = *inputs.priced;
  const double all = stored_weight_bytes(priced);
  double bytes = all / tp;
  if (priced.experts)  // an instance's ranks divide the experts
    bytes -= stored_expert_bytes(priced) / tp * (1 - 1.0 / simulation.instance);
  if (priced.vision && priced.vision->tower)  // each GPU has the whole tower
    bytes += static_cast<double>(simulation.gpus_per_rank *
                                 model::tower_weight_bytes(priced, priced.dtype));
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t tower_bytes(const Inputs& inputs) {
  if (inputs.sizes.largest_picture == 0) return 0;
  return model::tower_weight_bytes(inputs.target.config, inputs.target.compute);
}

std::uint64_t drafter_bytes(const Inputs& inputs, const ModelCheckpoint* model,
                            const DraftHead* head) {
  if (model != nullptr) return model::weight_bytes(model->config, model->compute, 1);
  if (head == nullptr) return 0;
  const std::uint64_t packed = model::weight_bytes(head->config, inputs.target.compute);
  if (!inputs.priced || !std::holds_alternative<MtpConfig>(head->config)) return packed;
  return static_cast<std::uint64_t>(static_cast<double>(packed / size_of(inputs.target.compute)) *
                                    inputs.priced->stored_bytes());
}

std::uint64_t drafter_bytes(const Inputs& inputs) {
  std::uint64_t bytes = 0;
  for (const ConfiguredDrafter& drafter : inputs.drafters)
    bytes += drafter_bytes(inputs, drafter.model.get(), drafter.head.get());
  return bytes;
}

int weight_sharers(const Machine& machine) { return policy::least_sharers(holders(machine)); }

WeightPlan plan_weights(const Inputs& inputs, const Machine& machine, const Plan& plan) {
  WeightPlan weights;
  weights.on_device = machine.backend.on_device();
  weights.copies = weight_copies(inputs, machine, plan);
  weights.most = most_bytes(inputs, plan, weights.copies);
  return weights;
}

std::uint64_t weights_to_lend(const Inputs& inputs, const Plan& plan) {
  std::uint64_t least = UINT64_MAX;
  for (const auto& [leader, tp] : plan.layout.placement.groups) {
    std::uint64_t bytes = 0;
    for (const WeightCopy& copy : plan.weights.copies) {
      const bool has = std::ranges::find(copy.ranks, leader) != copy.ranks.end();
      if (has && lends(inputs, plan, copy)) bytes += bytes_of(inputs, plan, copy.id);
    }
    least = std::min(least, bytes);
  }
  return least;
}

}  // namespace paceline::app
