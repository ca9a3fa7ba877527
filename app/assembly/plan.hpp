// The plan of a job: the decisions that follow from its inputs and machine. A plan never changes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/assembly/cost_conditions.hpp"
#include "app/assembly/drafters.hpp"
#include "app/assembly/inputs.hpp"
#include "app/assembly/machine.hpp"
#include "app/assembly/memory_plan.hpp"
#include "app/assembly/speculation_choice.hpp"
#include "app/assembly/tail_groups.hpp"
#include "app/assembly/weight_plan.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/policy/place/layout.hpp"
#include "runtime/policy/schedule/leases.hpp"

namespace paceline::app {

/// The ranks with draft servers, which hold the responses from which suffix drafters draft.
struct DraftServers {
  std::vector<int> ranks;
  std::string explanation;  ///< why these ranks have servers; empty: no rank has one
  bool history = false;     ///< servers also hold responses of earlier training steps
};

/// The plan is the same on every rank, with two exceptions. SpeculationChoice has fields that only
/// rank 0 sets, and costs.conditions has the rank's own number of threads.
struct Plan {
  policy::Layout layout;
  ProfiledCosts costs;
  SpeculationChoice speculation;
  std::vector<PlannedDrafter> drafters;  ///< in the order in which a rank asks them for drafts
  BestOfNPlan best_of_n;
  TailGroups tail_groups;  ///< larger groups for the last requests
  DraftServers draft_servers;
  WeightPlan weights;
  MemoryPlan memory;
  policy::LeaseTerms leases;
};

/// Plans a run. Collective; throws JobEnded on all ranks. The inputs must outlive the plan.
[[nodiscard]] Plan make_plan(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                             const Machine& machine);

/// Plans a run that computes log-probabilities of given responses. No rank drafts in such a run.
/// Collective; throws JobEnded.
[[nodiscard]] Plan plan_given(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                              const Machine& machine);

/// Gives ranks their roles. `degree`: the groups' tensor-parallel degrees if layout.verifier_tp is
/// `auto`; if this list is empty, the ranks' memory decides. `drafters`: number of drafter ranks;
/// absent: none. `drafters_reason`: why this number; empty: the user has set it, or there are none.
/// Throws as policy::plan_layout() does.
[[nodiscard]] policy::Layout lay_out(const Inputs& inputs, const Machine& machine,
                                     const std::vector<std::int32_t>& degree,
                                     std::optional<int> drafters,
                                     const std::string& drafters_reason);

/// Makes a plan from its parts `costs`, `tail_groups` and `speculation`. `degree`: as in lay_out().
/// Throws as lay_out() does, and UsageError if memory is too small, if more draft servers are asked
/// for than there are ranks, or if drafter ranks would draft trees.
[[nodiscard]] Plan complete_plan(const Inputs& inputs, const Machine& machine,
                                 const std::vector<std::int32_t>& degree, ProfiledCosts costs,
                                 TailGroups tail_groups, SpeculationChoice speculation);

}  // namespace paceline::app
