// The drafters of a plan: who has which, and how a verifier's roster lists them.
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

/// A configured drafter in its place in the plan. The inputs, whose checkpoints it names, outlive
/// it.
struct PlannedDrafter {
  io::DrafterSetting setting;
  std::string name;                        ///< in telemetry
  const ModelCheckpoint* model = nullptr;  ///< of method model
  const DraftHead* head = nullptr;         ///< of methods eagle3 and mtp
  double acceptance = 0;                   ///< of its tokens, in earlier runs
};

/// How ranks that have run dry help others (SpecActor's best-of-N).
struct BestOfN {
  /// Whether groups race for requests of others: racing is asked for, and there are several groups
  /// and a drafter besides the one that a request has.
  bool races = false;
  int race_methods = 0;  ///< drafters that may race: the first of drafter_roster()
  /// Indices of the draft models by which freed ranks may draft for the last requests of a group
  /// (policy/schedule/tail_drafters.hpp): all but the model that drafts for them already. Empty: no
  /// freed rank drafts, for best-of-N is not asked for, drafts are to be coupled, or there are no
  /// costs to decide by.
  std::vector<std::int32_t> tail_methods;
  bool roles_change = false;  ///< ranks may have other roles than those of the layout
};
/// Needs the plan's layout, drafters and costs.
[[nodiscard]] BestOfN plan_best_of_n(const Inputs& inputs, const Plan& plan);

/// Most tokens of a request's draft where all requests of a batch have as many; 0 without drafters.
[[nodiscard]] int draft_tokens(const io::SpeculationSection& settings);

/// Window of a drafter rank that has few requests (roles::DrafterOptions::longest); 0: the plan's
/// window, which speculation.window has set.
[[nodiscard]] int longest_window(const Inputs& inputs, const Plan& plan);

/// How draft trees are recorded, where record_stops is not 0.
[[nodiscard]] speculation::StopRecorderOptions stop_recording(
    const io::SpeculationSection& settings);

/// Whether ranks of this role have the draft models: drafter ranks and, where the layout has none
/// of those, verifiers.
[[nodiscard]] bool has_draft_models(const Plan& plan, Role role);
/// The head of the drafters; null: there is none.
[[nodiscard]] const DraftHead* draft_head(const Plan& plan);
/// Layers of the target that the head reads (feature_layers()); empty: there is no head.
[[nodiscard]] std::vector<std::int32_t> read_layers(const Inputs& inputs, const Plan& plan);
/// Whether the head embeds tokens by a table of its own, not the target's.
[[nodiscard]] bool has_own_embeddings(const Plan& plan);
/// Bytes of one token's features, which the head reads.
[[nodiscard]] std::uint64_t feature_row_bytes(const Inputs& inputs, const Plan& plan);
/// Whether ranks of this role have the head: drafter ranks where the layout has some and there is
/// no draft model for them; else verifiers.
[[nodiscard]] bool has_head(const Plan& plan, Role role);
/// Throws UsageError where drafter ranks, which draft chains, would have to draft trees by the
/// head: for its stop network, or to record them.
void require_chains(const Inputs& inputs, const Plan& plan);
/// Indices of the drafters that a rank makes for itself in a place.
[[nodiscard]] std::vector<std::int32_t> own_drafters(const Plan& plan, Role role,
                                                     const policy::DrafterPlace* place = nullptr);
/// The roster of verifiers, without drafters in it: drafter ranks of the layout, then the
/// verifier's own, then ranks that draft for one group by one of the tail methods. `costs`: null,
/// or of all drafters that are known.
[[nodiscard]] speculation::DrafterRoster drafter_roster(const Plan& plan,
                                                        const CostTable* costs = nullptr);
/// Names of the roster's entries.
[[nodiscard]] std::vector<std::string> drafter_names(const Plan& plan);
/// Names by which telemetry counts drafts: the roster's and, where suffix trees begin with
/// responses of earlier steps, those by their age in steps ("history:3-4"), which are counted
/// beside "suffix".
[[nodiscard]] std::vector<std::string> counted_drafters(const Inputs& inputs, const Plan& plan);

}  // namespace paceline::app
