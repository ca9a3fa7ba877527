// Degrees of the larger groups into which groups may join for the last requests
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

/// Costs of groups of larger degrees than the layout's: each degree is twice the one before. The
/// same on every rank.
struct TailGroups {
  std::map<int, CostTable> costs;  ///< cost tables by degree; empty: no groups join
  std::string explanation;         ///< text for people; empty: nothing to tell

  [[nodiscard]] bool grow() const { return !costs.empty(); }
};

/// Degrees into which groups of the layout may join, ascending. A degree is at most layout.tail_tp,
/// the model's segments and a node's ranks. Empty if requests do not move (schedule.rebalance), or
/// groups have several degrees.
[[nodiscard]] std::vector<int> tail_degrees(const Inputs& inputs, const Machine& machine,
                                            const policy::Placement& placement);

/// Reads engine.tail_profile. Throws UsageError if its degree is not twice the layout's, or if
/// layout.tail_tp asks for costs that are not known. The tail profile is not used if it or
/// engine.profile does not hold here. `costs`: costs of the layout's groups. The second form reads
/// on rank 0 for all; it is collective and throws JobEnded.
[[nodiscard]] TailGroups read_tail_profile(const Inputs& inputs, const Machine& machine,
                                           const policy::Placement& placement,
                                           const ProfiledCosts& costs);
[[nodiscard]] TailGroups read_tail_profile(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                                           const Machine& machine,
                                           const policy::Placement& placement,
                                           const ProfiledCosts& costs);

/// Whether the rank may be in a group of degree `tp` into which groups of the layout join. Such a
/// group lies on one node.
[[nodiscard]] bool joins(const Machine& machine, const policy::Placement& placement, int rank,
                         int tp);

/// Removes the degrees that no groups of the layout can join into: drafter ranks and borders of
/// nodes may leave too few neighbours.
void keep_possible(const Machine& machine, const policy::Placement& placement, TailGroups& tail);

/// Options by which the scheduler joins groups; empty if the layout's costs are not known.
[[nodiscard]] policy::GrowthOptions growth_options(const Inputs& inputs, const Machine& machine,
                                                   const Plan& plan);

/// Seconds in which a rank with a device loads its weights for a group of degree `tp`. 0 if weights
/// are in host memory: they are there from the start.
[[nodiscard]] double loading_seconds(const Inputs& inputs, const Machine& machine, int tp);

}  // namespace paceline::app
