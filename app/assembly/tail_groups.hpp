// Larger groups for a run's last requests: two neighbouring groups may join into one group of twice
// the tensor-parallel degree (policy/schedule/growth.hpp).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/assembly/cost_conditions.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/growth.hpp"

namespace paceline::app {

struct Inputs;
struct Machine;
struct Plan;

/// The larger groups into which groups may join. The same on every rank.
struct TailGroups {
  std::map<int, CostTable> costs;  ///< costs by larger degree; empty: no groups join
  std::string explanation;         ///< text for the user; empty if engine.tail_profile is not set

  [[nodiscard]] bool grow() const { return !costs.empty(); }
};

/// Degrees of the larger groups, ascending: twice the layout's degree, four times, and so on. No
/// degree exceeds layout.tail_tp, the number of parts into which the model can be cut, the ranks of
/// rank 0's node, or the ranks of all groups. Empty if requests never move (schedule.rebalance is
/// false, or schedule.policy is `group`) or if the layout's groups differ in degree.
[[nodiscard]] std::vector<int> tail_degrees(const Inputs& inputs, const Machine& machine,
                                            const policy::Placement& placement);

/// Reads engine.tail_profile, a cost table of groups of twice the layout's degree. No groups join
/// if the key is not set, or if this table or the profile in `costs` does not apply to the run.
/// Throws Error, also if the table has another degree, or if layout.tail_tp asks for a degree
/// without known costs. The overload with `mpi` is collective and throws JobEnded.
[[nodiscard]] TailGroups read_tail_profile(const Inputs& inputs, const Machine& machine,
                                           const policy::Placement& placement,
                                           const ProfiledCosts& costs);
[[nodiscard]] TailGroups read_tail_profile(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                                           const Machine& machine,
                                           const policy::Placement& placement,
                                           const ProfiledCosts& costs);

/// Whether `rank` can be in a larger group of degree `tp`: all ranks of this larger group are in
/// verifier groups of `placement`, and on one node.
[[nodiscard]] bool joins(const Machine& machine, const policy::Placement& placement, int rank,
                         int tp);

/// Removes degrees for which no groups can join. Drafter ranks and borders between nodes can leave
/// too few neighbouring groups.
void keep_possible(const Machine& machine, const policy::Placement& placement, TailGroups& tail);

/// Options by which the scheduler decides when groups join. If costs are not known, no groups join.
[[nodiscard]] policy::GrowthOptions growth_options(const Inputs& inputs, const Machine& machine,
                                                   const Plan& plan);

/// Estimates the seconds in which a rank loads its weights for a group of degree `tp` onto its GPU.
/// 0 if there are no GPUs, because host memory has these weights from the start.
[[nodiscard]] double loading_seconds(const Inputs& inputs, const Machine& machine, int tp);

}  // namespace paceline::app
