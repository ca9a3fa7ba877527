// Degrees of the groups into which groups may join for the last requests
// (policy/schedule/growth.hpp).
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

/// Costs of groups of larger degrees than the layout's, each twice the one before. The same on
/// every rank.
struct TailGroups {
  std::map<int, CostTable> costs;  ///< by degree; empty: no groups join
  std::string explanation;         ///< for people; empty: nobody asked for larger groups

  [[nodiscard]] bool grow() const { return !costs.empty(); }
};

/// Degrees into which groups of the layout may join, ascending: within layout.tail_tp, the model's
/// segments and a node. Empty where requests do not move (schedule.rebalance), or groups have
/// several degrees.
[[nodiscard]] std::vector<int> tail_degrees(const Inputs& inputs, const Machine& machine,
                                            const policy::Placement& placement);

/// Reads engine.tail_profile, on rank 0 for all. UsageError where it is of another degree than
/// twice the layout's, or layout.tail_tp asks for costs that are not known. It is not used where it
/// does not hold, or engine.profile does not. `costs`: of the layout's groups. Collective; throws
/// JobEnded.
[[nodiscard]] TailGroups read_tail_profile(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                                           const Machine& machine,
                                           const policy::Placement& placement,
                                           const ProfiledCosts& costs);

/// Whether the rank may be in a group of degree `tp`, into which groups of the layout join: one
/// that lies on a node.
[[nodiscard]] bool joins(const Machine& machine, const policy::Placement& placement, int rank,
                         int tp);

/// Leaves out the degrees that no groups of the layout can have: drafter ranks and the ends of
/// nodes leave too few neighbours.
void keep_possible(const Machine& machine, const policy::Placement& placement, TailGroups& tail);

/// What the scheduler joins groups by. Needs costs of the layout's degree.
[[nodiscard]] policy::GrowthOptions growth_options(const Inputs& inputs, const Machine& machine,
                                                   const Plan& plan);

/// Seconds in which a rank of a device loads its share of the weights for a group of degree `tp`.
/// Weights in host memory are there from the start: 0.
[[nodiscard]] double loading_seconds(const Inputs& inputs, const Machine& machine, int tp);

}  // namespace paceline::app
