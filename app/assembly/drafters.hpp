// The drafters of a plan: which rank has which, and how a verifier's roster lists them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/assembly/configured_drafters.hpp"
#include "io/config/run_config.hpp"
#include "runtime/core/role.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/protocol/draft_messages.hpp"
#include "runtime/speculation/drafter_roster.hpp"
#include "runtime/speculation/stop_recorder.hpp"

namespace paceline::app {

struct Inputs;
struct Plan;

/// A configured drafter in the plan's order. The inputs outlive it, for it points to their
/// checkpoints.
struct PlannedDrafter {
  io::DrafterSetting setting;
  std::string name;                        ///< name in telemetry
  const ModelCheckpoint* model = nullptr;  ///< draft model, of method model
  const DraftHead* head = nullptr;         ///< head, of methods dflash, eagle3 and mtp
  double acceptance = 0;                   ///< share of its tokens accepted in earlier runs
};

/// How ranks of groups without requests help other groups (SpecActor's best-of-N).
struct BestOfNPlan {
  /// Whether groups race for requests of others: racing is asked for, and there are at least two
  /// groups and two drafters.
  bool races = false;
  int race_methods = 0;  ///< number of drafters that may race: first entries of drafter_roster()
  /// Indices of the draft models with which freed ranks may draft for the last requests of a group
  /// (policy/schedule/tail_drafters.hpp): all but the model that drafts for them already. Empty: no
  /// freed rank drafts, because best-of-N is off, drafts are to be coupled, or costs are not known.
  std::vector<std::int32_t> tail_methods;
  bool roles_change = false;  ///< ranks may get other roles than the layout's
};
/// Needs the plan's layout, drafters, costs and tail groups.
[[nodiscard]] BestOfNPlan plan_best_of_n(const Inputs& inputs, const Plan& plan);

/// Most tokens of a request's draft if all requests of a batch draft as many; 0: no drafters.
[[nodiscard]] int draft_tokens(const io::SpeculationSection& settings);

/// Window of a rank that drafts by drafter `method`; absent: by all drafters. A rank that drafts
/// for one group sends token by token, so its window only limits how far it runs ahead.
[[nodiscard]] protocol::DraftWindow draft_window(const Inputs& inputs, const Plan& plan,
                                                 OptionalIndex method = {});

/// How requests are dealt to drafter ranks that draft by all drafters: by prompt if suffix trees
/// are among them. A tree knows only siblings of its own rank, so with many drafter ranks each
/// request would be alone. (With four ranks and 16 siblings the deal hardly matters: in two
/// simulations by_request took 1.029 and 0.973 of by_prompt's seconds.)
[[nodiscard]] policy::DrafterDeal drafter_deal(const Plan& plan);

/// Options for recording draft trees; call only if record_stops is not 0.
[[nodiscard]] speculation::StopRecorderOptions stop_recording(
    const io::SpeculationSection& settings);

/// Whether ranks of this role have the draft models. If the layout has drafter ranks, these do,
/// else verifiers do.
[[nodiscard]] bool has_draft_models(const Plan& plan, Role role);
/// The only head among the drafters; null: there is none.
[[nodiscard]] const DraftHead* draft_head(const Plan& plan);
/// Layers of the target that the head reads (feature_layers()); empty: there is no head.
[[nodiscard]] std::vector<std::int32_t> read_layers(const Inputs& inputs, const Plan& plan);
/// Whether the head embeds tokens by a table of its own, not the target's.
[[nodiscard]] bool has_own_embeddings(const Plan& plan);
/// Tokens of the longest path that a draft model or head is asked for.
[[nodiscard]] int longest_draft(const Inputs& inputs, const Plan& plan);
/// Bytes of the features of one token, which the head reads.
[[nodiscard]] std::uint64_t feature_row_bytes(const Inputs& inputs, const Plan& plan);
/// Whether ranks of this role have the head. If the layout has drafter ranks and no draft model,
/// drafter ranks do, else verifiers do.
[[nodiscard]] bool has_head(const Plan& plan, Role role);
/// Throws UsageError if the head would draft trees on drafter ranks, which draft only chains: it
/// has a stop network, or its trees are to be recorded.
void require_chains(const Inputs& inputs, const Plan& plan);
/// Indices of the drafters that a rank makes for itself. `place`: null, or a drafter rank's place.
[[nodiscard]] std::vector<std::int32_t> own_drafters(const Plan& plan, Role role,
                                                     const policy::DrafterPlace* place = nullptr);
/// The roster of verifiers; its entries have no drafter yet. Order: drafter ranks of the layout,
/// the verifier's own drafters, ranks that draft for one group by one of the tail methods. `costs`:
/// null, or a cost table, which may lack drafters.
[[nodiscard]] speculation::DrafterRoster drafter_roster(const Plan& plan,
                                                        const CostTable* costs = nullptr);
/// Names of the roster's entries.
[[nodiscard]] std::vector<std::string> drafter_names(const Plan& plan);
/// Names by which telemetry counts drafts: the roster's names. If suffix trees begin with responses
/// of earlier steps, drafts from such responses count as "suffix" and also by the responses' age in
/// steps ("history:3-4").
[[nodiscard]] std::vector<std::string> counted_drafters(const Inputs& inputs, const Plan& plan);

}  // namespace paceline::app
