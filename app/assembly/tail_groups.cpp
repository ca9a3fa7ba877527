#include "app/assembly/tail_groups.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "app/assembly/communicator.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/plan.hpp"
#include "app/assembly/weight_plan.hpp"
#include "io/config/cost_profile.hpp"
#include "io/config/yaml_tree.hpp"
#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

/// Bytes a second at which a modelled GPU loads weights from its host over PCIe 5.0 x16.
constexpr double kHostBandwidth = 50e9;
/// Bytes a second at which a real GPU loads weights from files in the page cache. This number is an
/// estimate, not a measurement.
constexpr double kFileBandwidth = 1e9;

struct TailProfile {
  std::string text;   ///< contents of the file engine.tail_profile; empty: the key is not set
  std::string fault;  ///< why these costs do not apply to the run; empty: they apply
};

/// Reads engine.tail_profile and checks it. Throws UsageError as read_tail_profile() does.
TailProfile check_tail_profile(const Inputs& inputs, const policy::Placement& placement,
                               const ProfiledCosts& costs) {
  const Auto<std::string>& path = inputs.config.engine.tail_profile;
  const Auto<std::int32_t>& wanted = inputs.config.layout.tail_tp;
  const int degree = placement.least_tp();
  if (!path) {
    if (!wanted || *wanted <= degree) return {};
    throw UsageError(fmt::format(
        "layout.tail_tp: costs of groups of {0} are not known; measure them with `paceline "
        "profile CONFIG --set layout.verifier_tp={0} --output FILE` and set engine.tail_profile",
        2 * degree));
  }
  TailProfile profile{io::read_yaml_file(*path, "the cost profile"), ""};
  const CostTable table = io::parse_cost_profile(profile.text, *path);
  const int tp = table.conditions.tp;
  if (tp != 2 * degree)
    throw UsageError(fmt::format(
        "engine.tail_profile: {} was measured with tensor-parallel degree {}, expected {}: twice "
        "that of the groups (layout.verifier_tp)",
        *path, tp, 2 * degree));
  if (wanted && *wanted > tp)
    throw UsageError(fmt::format(
        "layout.tail_tp: expected at most {}, the degree of engine.tail_profile, found {}", tp,
        *wanted));
  profile.fault = difference(table, costs.conditions, {&tp, 1}, inputs.drafters,
                             inputs.target.compute, "this run");
  if (profile.fault.empty() && !costs.profile_holds())
    profile.fault = "costs of the layout's groups are not known beforehand (engine.profile)";
  return profile;
}

TailGroups groups_of(const TailProfile& profile, const Inputs& inputs, const Machine& machine,
                     const policy::Placement& placement) {
  TailGroups tail;
  const Auto<std::string>& path = inputs.config.engine.tail_profile;
  if (!path) return tail;
  if (!profile.fault.empty()) {
    tail.explanation = fmt::format(
        "warning: no groups join, because {} (engine.tail_profile) does not apply to this run: {}",
        *path, profile.fault);
    return tail;
  }
  const std::vector<int> degrees = tail_degrees(inputs, machine, placement);
  if (degrees.empty()) {
    tail.explanation =
        "groups do not join into larger ones: joining needs schedule.rebalance: true, a "
        "schedule.policy other than group, layout.tail_tp of at least twice the groups' degree, a "
        "model that can be cut into as many parts, and two groups on a node";
    return tail;
  }
  tail.costs[degrees.front()] = io::parse_cost_profile(profile.text, *path);
  tail.explanation = fmt::format(
      "groups join into groups of {} at the end of the run, if the last requests finish sooner "
      "that way (override: layout.tail_tp)",
      degrees.front());
  return tail;
}

}  // namespace

std::vector<int> tail_degrees(const Inputs& inputs, const Machine& machine,
                              const policy::Placement& placement) {
  const std::vector<int> degrees = placement.degrees();
  const io::ScheduleSection& schedule = inputs.config.schedule;
  if (!schedule.rebalance || schedule.policy == io::SchedulePolicy::group || degrees.size() != 1)
    return {};
  const int segments = inputs.target.config.segments();
  const int most =
      std::min<int>(inputs.config.layout.tail_tp.value_or(segments),
                    std::min<int>(segments, static_cast<int>(machine.ranks.front().local_ranks)));
  std::vector<int> larger;
  for (int tp = 2 * degrees.front();
       tp <= most && tp <= static_cast<int>(placement.groups.size()) * degrees.front(); tp *= 2)
    larger.push_back(tp);
  return larger;
}

TailGroups read_tail_profile(const Inputs& inputs, const Machine& machine,
                             const policy::Placement& placement, const ProfiledCosts& costs) {
  return groups_of(check_tail_profile(inputs, placement, costs), inputs, machine, placement);
}

TailGroups read_tail_profile(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                             const Machine& machine, const policy::Placement& placement,
                             const ProfiledCosts& costs) {
  TailProfile profile;
  together(mpi, [&] {
    if (mpi.rank() == 0) profile = check_tail_profile(inputs, placement, costs);
  });
  broadcast(mpi, profile.text, profile.fault);
  return groups_of(profile, inputs, machine, placement);
}

bool joins(const Machine& machine, const policy::Placement& placement, int rank, int tp) {
  const int first = rank / tp * tp;
  for (int other = first; other < first + tp; ++other) {
    if (other >= placement.ranks || placement.group(other) < 0 ||
        machine.ranks[other].node != machine.ranks[first].node)
      return false;
  }
  return true;
}

void keep_possible(const Machine& machine, const policy::Placement& placement, TailGroups& tail) {
  if (!tail.grow()) return;
  std::erase_if(tail.costs, [&](const auto& of) {
    for (int rank = 0; rank < placement.ranks; ++rank) {
      if (joins(machine, placement, rank, of.first)) return false;
    }
    return true;
  });
  if (!tail.grow())
    tail.explanation = "groups do not join into larger ones: none has a neighbour on its node";
}

policy::GrowthOptions growth_options(const Inputs& inputs, const Machine& machine,
                                     const Plan& plan) {
  policy::GrowthOptions options;
  if (!plan.tail_groups.grow() || !plan.costs.profile_holds()) return options;
  options.costs = plan.tail_groups.costs;
  options.costs[plan.layout.placement.least_tp()] = *plan.costs.profile;
  for (const speculation::RosterEntry& entry : drafter_roster(plan, &*plan.costs.profile)) {
    const bool ahead = entry.kind == speculation::DrafterKind::ahead;
    const bool models = plan.drafters[entry.place].model != nullptr;
    if (options.drafter || !(ahead || (models && entry.kind == speculation::DrafterKind::own)))
      continue;
    options.drafter = policy::TailMethod{entry.place, entry.costs.value(), entry.acceptance};
    options.mode = ahead ? SpeculationMode::decoupled : SpeculationMode::coupled;
  }
  options.longest_draft = inputs.config.speculation.max_length;
  options.max_batch = inputs.config.engine.max_batch;
  options.drafters = std::max(1, plan.layout.drafters());
  options.kv_block = inputs.config.engine.kv_block;
  options.kv_blocks = plan.memory.kv.blocks;
  for (const fabric::RankFacts& rank : machine.ranks) options.node_of_rank.push_back(rank.node);
  options.change_seconds = loading_seconds(inputs, machine, plan.tail_groups.costs.begin()->first);
  return options;
}

double loading_seconds(const Inputs& inputs, const Machine& machine, int tp) {
  if (!machine.backend.on_device()) return 0;
  const double bandwidth =
      inputs.priced ? inputs.config.simulation.gpus_per_rank * kHostBandwidth : kFileBandwidth;
  return static_cast<double>(target_bytes(inputs, tp)) / bandwidth;
}

}  // namespace paceline::app
