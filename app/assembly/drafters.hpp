// The drafters of a plan: the drafters of each rank, and a verifier's list of drafters (roster).
// Drafters run on verifiers and on "drafter ranks" (role `drafter`), which draft for verifiers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/assembly/configured_drafters.hpp"
#include "io/config/run_config.hpp"
#include "runtime/core/role.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/speculation/drafter_roster.hpp"
#include "runtime/speculation/stop_recorder.hpp"

namespace paceline::app {

struct Inputs;
struct Plan;

/// A drafter of the plan. Points into Inputs, which must outlive this object.
struct PlannedDrafter {
  io::DrafterSetting setting;
  std::string name;                        ///< name in telemetry
  const ModelCheckpoint* model = nullptr;  ///< null unless the method is `model`
  const DraftHead* head = nullptr;         ///< null unless the method is dflash, eagle3 or mtp
  double acceptance = 0;                   ///< expected acceptance rate (DraftHistory::rate())
};

/// How ranks that have no requests left ("freed ranks") help other groups (SpecActor's best-of-N).
struct BestOfNPlan {
  /// Whether groups race: a group without requests generates a response that another group also
  /// generates, with another drafter. Races need best_of_n, two groups and race_methods above 1.
  bool races = false;
  int race_methods = 0;  ///< races use the first `race_methods` entries of drafter_roster()
  /// Indices of the draft models with which freed ranks may draft for the last requests of a group
  /// (tail_drafters.hpp), except a model whose drafts the group gets anyway. Empty if freed ranks
  /// do not draft, because best-of-N is off, there is one group, speculation.mode is coupled, no
  /// model is left, or no cost profile applies (and test.shuffle does not change roles).
  std::vector<std::int32_t> tail_methods;
  bool roles_change = false;  ///< ranks may change their roles during the run
};
/// Plans best-of-N. The plan must have its layout, drafters, costs and tail groups.
[[nodiscard]] BestOfNPlan plan_best_of_n(const Inputs& inputs, const Plan& plan);

/// Limit on the tokens of one request's draft in a step of a full batch; 0: there are no drafters.
/// With fewer requests, a draft may be longer.
[[nodiscard]] int draft_tokens(const io::SpeculationSection& settings);

/// How requests are divided among drafter ranks that use all drafters. If there is a suffix
/// drafter, all requests of a prompt go to one rank, because a suffix tree learns only from
/// responses on its own rank. With four drafter ranks and 16 responses to a prompt, the choice
/// hardly matters: two simulated runs took 1.029 and 0.973 times as long by_request as by_prompt.
[[nodiscard]] policy::DrafterDeal drafter_deal(const Plan& plan);

/// Options for recording draft trees; call only if record_stops is not 0.
[[nodiscard]] speculation::StopRecorderOptions stop_recording(
    const io::SpeculationSection& settings);

/// Whether the draft models, if the plan has any, are on ranks of this role: on drafter ranks, and
/// on verifiers if the layout has no drafter ranks.
[[nodiscard]] bool has_draft_models(const Plan& plan, Role role);
/// The plan's draft head; null: no drafter is a head. A plan has at most one.
[[nodiscard]] const DraftHead* draft_head(const Plan& plan);
/// Layers of the target from which the head reads features (feature_layers()); empty: no head.
[[nodiscard]] std::vector<std::int32_t> read_layers(const Inputs& inputs, const Plan& plan);
/// Whether the plan has a head with an embedding table of its own.
[[nodiscard]] bool has_own_embeddings(const Plan& plan);
/// Greatest length, in tokens, of a path that a draft model or head is asked for.
[[nodiscard]] int longest_draft(const Inputs& inputs, const Plan& plan);
/// Bytes of the target's features that the head reads for one token; 0: there is no head.
[[nodiscard]] std::uint64_t feature_row_bytes(const Inputs& inputs, const Plan& plan);
/// Whether ranks of this role have the plan's head. Drafter ranks have the head if the layout has
/// drafter ranks and the plan has no draft model. Otherwise verifiers have the head.
[[nodiscard]] bool has_head(const Plan& plan, Role role);
/// Throws UsageError if drafter ranks have a head that must draft trees, because it has a stop
/// network or its trees are to be recorded. With a head, drafter ranks draft only chains.
void require_chains(const Inputs& inputs, const Plan& plan);
/// Indices of a rank's own drafters in plan.drafters. `role`: verifier or drafter. `place`: a
/// drafter rank's entry in the placement; null: the rank is a verifier, or uses no single drafter.
[[nodiscard]] std::vector<std::int32_t> own_drafters(const Plan& plan, Role role,
                                                     const policy::DrafterPlace* place = nullptr);
/// Makes a verifier's roster, without the drafter objects. If the layout has drafter ranks, one
/// entry for all of them comes first. The verifier's own drafters follow, then an entry for each of
/// tail_methods. `costs`: table that fills RosterEntry::costs; null: costs stay unknown.
[[nodiscard]] speculation::DrafterRoster drafter_roster(const Plan& plan,
                                                        const CostTable* costs = nullptr);
/// Names of the roster's entries.
[[nodiscard]] std::vector<std::string> drafter_names(const Plan& plan);
/// Names under which telemetry counts drafts: the roster's names and, if suffix trees begin with
/// responses of earlier steps, a name for each range of these responses' ages in steps
/// ("history:3-4"). A draft from such a response is also counted under "suffix".
[[nodiscard]] std::vector<std::string> counted_drafters(const Inputs& inputs, const Plan& plan);

}  // namespace paceline::app
