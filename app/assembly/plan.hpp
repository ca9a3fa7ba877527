// The plan of a job: the decisions that its inputs and its machine lead to. Nothing changes it
// afterwards.
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

/// The ranks that host a draft server, and the reason for them.
struct DraftServers {
  std::vector<int> ranks;
  std::string explanation;  ///< empty: there are no servers
  bool history = false;     ///< they also serve responses of earlier steps
};

/// The plan is equal on every rank, with two exceptions. Rank 0 alone has the runners-up of
/// `speculation`, and the conditions of `costs` name the rank's own threads.
struct Plan {
  policy::Layout layout;
  ProfiledCosts costs;
  SpeculationChoice speculation;
  std::vector<PlannedDrafter> drafters;  ///< in the order in which a rank asks them
  BestOfNPlan best_of_n;
  TailGroups tail_groups;
  DraftServers draft_servers;
  WeightPlan weights;
  MemoryPlan memory;
  policy::LeaseTerms leases;
};

/// Plans a run. The inputs outlive the plan. Collective; throws JobEnded.
[[nodiscard]] Plan make_plan(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                             const Machine& machine);

/// Plans a run that computes log-probabilities of given responses: no rank drafts.
/// Collective; throws JobEnded.
[[nodiscard]] Plan plan_given(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                              const Machine& machine);

/// Gives ranks their roles. `degree`: the groups' degrees, which count if layout.verifier_tp is
/// auto. If empty, the ranks' memory decides. `drafters`: number of drafter ranks.
/// `drafters_reason`: why it is this number. It is empty if layout.drafters sets the number. Throws
/// as policy::plan_layout() does.
[[nodiscard]] policy::Layout lay_out(const Inputs& inputs, const Machine& machine,
                                     const std::vector<std::int32_t>& degree,
                                     std::optional<int> drafters,
                                     const std::string& drafters_reason);

/// Makes the rest of a plan when costs are known and speculation is chosen. `degree`: as in
/// lay_out(). Throws UsageError if memory is too small, if there are too many servers, or if
/// drafter ranks would draft trees.
[[nodiscard]] Plan complete_plan(const Inputs& inputs, const Machine& machine,
                                 const std::vector<std::int32_t>& degree, ProfiledCosts costs,
                                 TailGroups tail_groups, SpeculationChoice speculation);

}  // namespace paceline::app
