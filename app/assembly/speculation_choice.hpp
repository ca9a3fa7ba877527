// Chooses the number of drafter ranks, their draft window, and the order of drafters, by known
// costs and within the limits that the configuration sets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/assembly/cost_conditions.hpp"
#include "app/assembly/drafters.hpp"
#include "app/assembly/tail_groups.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/plan/draft_ladder.hpp"
#include "runtime/policy/plan/speculation_plan.hpp"
#include "runtime/protocol/draft_messages.hpp"

namespace paceline::app {

struct Inputs;
struct Plan;

/// The choice and its reasons. The first six fields are the same on every rank. The other fields
/// are set only on rank 0, for the scheduler and for texts to the user.
struct SpeculationChoice {
  int drafter_ranks = 0;  ///< number of drafter ranks
  std::string reason;     ///< why this number of drafter ranks; empty: layout.drafters sets it
  protocol::DraftWindow window;  ///< draft window of a rank that drafts for all groups
  /// Draft window of a freed rank, which drafts for one group (BestOfNPlan). The rank may be eager
  /// (DraftWindow::eager) even if the user sets speculation.window.
  protocol::DraftWindow freed_window;
  std::vector<std::int32_t> order;  ///< [drafters] indices into Inputs::drafters, in asking order
  std::vector<double> acceptance;   ///< [order] acceptance rates of drafters, known or assumed
  std::vector<policy::SpeculationPlan> plans;  ///< possible plans, fastest first
  OptionalIndex chosen;                      ///< index in `plans`; absent: no plan could be chosen
  std::vector<policy::DraftMethod> methods;  ///< methods of all configured drafters
  std::vector<bool> known;  ///< [methods] whether earlier runs measured the method's acceptance
  std::vector<policy::RankedMethod> ranked;  ///< methods by their speedup, fastest first
  policy::LadderLoad load;                   ///< load for which `ranked` and the ladder hold
  double requests = 0;                       ///< number of responses in the run

  /// `method`: policy::DrafterPlace::method of the drafter rank.
  [[nodiscard]] protocol::DraftWindow window_of(OptionalIndex method) const {
    return method ? freed_window : window;
  }
};

/// Chooses drafter ranks by SpecActor's Algorithm 1, and the order of drafters by SpecActor's
/// initial selection. Both need a profile that was measured under this run's conditions. Without
/// such a profile, the configuration's drafter ranks and order stay. `first`: placement of the
/// first layout, which is made before speculation is chosen. `history`: acceptance rates of earlier
/// runs. `tail`: larger groups that the layout's groups may join into. Throws UsageError if
/// speculation.mode is `decoupled`, layout.drafters is not set, and the number of drafter ranks
/// cannot be planned.
///
/// The initial selection (SpecActor, section 4.2) sorts drafters by speedup, the fastest first. A
/// drafter's ladder (draft_ladder.hpp) gives its speedup at its acceptance rate in `history`, or at
/// an assumed rate if `history` lacks the drafter. But all n-grams and suffix trees come before
/// models and heads, because lookups cost next to nothing. A model loses nothing by coming later:
/// speculation::Speculator also asks a later drafter if it is expected to draft better than the
/// earlier ones. If there are drafter ranks, the chosen plan's method comes first, because a
/// drafter rank asks its second drafter only for requests for which the first drafts nothing.
[[nodiscard]] SpeculationChoice choose_speculation(const Inputs& inputs,
                                                   const policy::Placement& first,
                                                   const ProfiledCosts& costs,
                                                   const TailGroups& tail,
                                                   const DraftHistory& history);

/// The drafters in the chosen order.
[[nodiscard]] std::vector<PlannedDrafter> in_order(std::span<const ConfiguredDrafter> drafters,
                                                   const SpeculationChoice& choice);

/// The load at which drafters are compared: a group's batch at the run's start, and a mean context.
[[nodiscard]] policy::LadderLoad ladder_load(const Inputs& inputs, int groups);

/// The draft ladder (draft_ladder.hpp) as lines of text; empty if `costs` include no drafter.
[[nodiscard]] std::string draft_ladder_text(const CostTable& costs, const policy::LadderLoad& load);

/// Text for the user: drafters' acceptance and speedup, plans with the settings that select each,
/// and the draft ladder. Empty if the choice has no plans.
[[nodiscard]] std::string speculation_text(const Plan& plan);

}  // namespace paceline::app
