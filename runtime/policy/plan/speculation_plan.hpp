// Whether ranks draft for others, how many, and how far ahead (SpecActor, section 4.1, Algorithm
// 1).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/speculation_mode.hpp"
#include "runtime/costs/cost_table.hpp"

namespace paceline::policy {

/// A way to cut the model, with what it costs: an element of the paper's set G of verification
/// configurations.
struct VerifierConfiguration {
  int tp = 1;       ///< ranks of a group: g_v
  CostTable table;  ///< of a group of this degree, and of its drafters on one rank
};

/// A way to draft, and how likely its tokens are accepted: the paper's p.
struct DraftMethod {
  std::string name;  ///< of DrafterCosts
  double acceptance = 0;
  bool apart = true;  ///< worth a rank of its own: not what costs a verifier next to nothing
};

struct PlanFacts {
  int ranks = 1;           ///< the paper's G
  double requests = 1;     ///< that are there at the start: the paper's B
  int max_batch = 64;      ///< most that a group decodes at a time
  double context = 0;      ///< positions that a request attends to, on average
  int longest_draft = 8;   ///< tokens; no window is larger
  int shortest_draft = 1;  ///< tokens, of coupled drafts: a fixed length is the longest
  std::vector<VerifierConfiguration> verifiers;
  std::vector<DraftMethod> methods;  ///< those without costs in a table are left out there
};

/// What the user has settled.
struct PlanSettings {
  std::optional<SpeculationMode> mode;
  std::optional<int> groups;
  std::optional<int> drafters;
  std::optional<int> window;
};

struct SpeculationPlan {
  SpeculationMode mode = SpeculationMode::plain;
  int tp = 1;
  int groups = 1;
  int drafters = 0;              ///< ranks, of a decoupled plan alone
  int window = 0;                ///< tokens, of one that drafts
  std::string method;            ///< likewise
  double tokens_per_second = 0;  ///< of all groups together, as foreseen
  std::string explanation;       ///< what the estimate comes from
  std::string settings;          ///< which ask for this plan: "speculation.mode=plain"
};

/// Algorithm 1: of every way to cut the model, every number of drafter ranks and every window the
/// one of the highest foreseen speed; and, by the same estimate, of plain and of coupled decoding,
/// for on few ranks those that draft may be missed more than their drafts are worth. One plan for
/// each mode, degree, number of drafters and method, with the best window of it; by falling speed,
/// of equal ones the simpler first. Empty where the settings leave nothing.
///
/// Where this departs from the paper:
/// - The paper gives each group drafters of its own, at least one. Here a drafter rank serves any
///   number of groups, so that what is enumerated is the number of drafter ranks of the whole job.
///   That drafters need no more ranks than verifiers prunes as there.
/// - The paper compares the speed of one request, for there all are decoded at once. Here a group
///   decodes `max_batch` at most, and plans are compared by the tokens of all groups.
[[nodiscard]] std::vector<SpeculationPlan> plan_speculation(const PlanFacts& facts,
                                                            const PlanSettings& settings);

}  // namespace paceline::policy
