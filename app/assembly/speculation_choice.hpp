// Whether ranks draft for others in this run, how many and how far ahead: what the plan says of the
// costs at hand, within what the configuration has settled.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/draft_history.hpp"
#include "runtime/policy/plan/draft_ladder.hpp"
#include "runtime/policy/plan/speculation_plan.hpp"

namespace paceline::app {

struct Setup;

/// What has been chosen, and by what. The first two decide the layout, the next two which drafter
/// is asked first and what is expected of it, the rest is for people.
struct SpeculationChoice {
  int drafter_ranks = 0;
  std::string reason;  ///< for their number, which layout.drafters overrides; empty: it is that key
  std::vector<std::int32_t> order;  ///< [drafters] entries of Setup::drafters as it was read
  std::vector<double> acceptance;   ///< [drafters] as known before the run, in that order
  std::vector<policy::SpeculationPlan> plans;  ///< that the job could have, by falling speed
  policy::SpeculationPlan chosen;              ///< where there are plans
  std::vector<policy::DraftMethod> methods;    ///< what they were made for
  std::vector<bool> known;                     ///< [methods] acceptance is that of earlier runs
  std::vector<policy::RankedMethod> ranked;    ///< by the ladder
  policy::LadderLoad load;                     ///< that the ladder was for
  double batch = 0;                            ///< requests at the start
};

/// speculation.mode plain takes the drafters out. Before they are read.
void settle_mode(Setup& setup);

/// Algorithm 1 and the initial selection, where a profile holds here and something drafts;
/// `history` is that of the profile. Asks for setup.layout as it is without a choice, and writes
/// setup.speculation and, where it is auto, the window. Throws UsageError where what is asked for
/// cannot be chosen.
///
/// The selection (SpecActor, section 4.2) is an order, by the ladder at the rates of the history. A
/// drafter rank asks the first and seldom gets to another, so that the plan's own method comes
/// first there. A verifier that drafts for itself asks n-grams and trees before models and heads,
/// for they cost next to nothing and it asks a later drafter where that is expected to do better
/// (roles::Speculator); among those that compute it is the order that counts.
void choose_speculation(Setup& setup, const DraftHistory& history);

/// Makes setup.drafters the order that was chosen; once.
void put_drafters_in_order(Setup& setup);

/// The load of one of `groups` groups at the start, for which methods are ranked.
[[nodiscard]] policy::LadderLoad ladder_load(const Setup& setup, int groups);

/// The draft ladder as lines of text, by these costs; empty where nothing drafts.
[[nodiscard]] std::string draft_ladder_text(const CostTable& costs, const policy::LadderLoad& load);

/// The plan, those that are next to it and the settings that ask for them, and the draft ladder,
/// for people; empty where no costs are known.
[[nodiscard]] std::string speculation_text(const Setup& setup);

}  // namespace paceline::app
