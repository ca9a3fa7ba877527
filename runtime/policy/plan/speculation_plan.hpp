// Number of drafter ranks and their window (SpecActor, section 4.1, Algorithm 1).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/speculation_mode.hpp"
#include "runtime/costs/cost_table.hpp"

namespace paceline::policy {

/// A way to cut the model, and its costs: an element of the paper's set G of verification
/// configurations.
struct VerifierConfiguration {
  int tp = 1;       ///< ranks of a group: g_v
  CostTable table;  ///< of a group of this degree, and of its drafters on one rank
};

/// A drafting method and the acceptance of its tokens: the paper's p.
struct DraftMethod {
  std::string name;  ///< as DrafterCosts names it
  double acceptance = 0;
  bool apart = true;  ///< worth a rank of its own; false where drafting costs next to nothing
};

struct PlanFacts {
  int ranks = 1;           ///< the paper's G
  double requests = 1;     ///< requests at the start: the paper's B
  int max_batch = 64;      ///< most that a group decodes at a time
  double context = 0;      ///< positions that a request attends to, on average
  int longest_draft = 8;   ///< tokens; no window is larger
  int shortest_draft = 1;  ///< tokens, of coupled drafts: a fixed length is the longest
  std::vector<VerifierConfiguration> verifiers;
  std::vector<DraftMethod> methods;  ///< a method without costs in a table is left out there
};

/// Choices that the user has made.
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
  int window = 0;                ///< tokens; 0: nothing is drafted
  std::string method;            ///< of drafting; empty where nothing is drafted
  double tokens_per_second = 0;  ///< of all groups together, as foreseen
  std::string explanation;       ///< how the estimate comes about
  std::string settings;          ///< settings that ask for this plan: "speculation.mode=plain"
};

/// Algorithm 1: the fastest foreseen plan over every way to cut the model, every number of drafter
/// ranks and every window; and, by the same estimate, plain and coupled decoding, for on few ranks
/// drafters may be worth less than as verifiers. One plan for each mode, degree, number of drafters
/// and method, with its best window, by falling speed; the simpler first of equal ones. Empty where
/// the settings leave nothing.
///
/// Departures from the paper:
/// - The paper gives each group drafters of its own, at least one. Here a drafter rank serves any
///   number of groups, so the search enumerates the drafter ranks of the whole job. As there, it is
///   pruned by the rule that drafters need no more ranks than verifiers.
/// - The paper compares the speed of one request, for all are decoded at once there. Here a group
///   decodes `max_batch` at most, and plans are compared by the tokens of all groups.
[[nodiscard]] std::vector<SpeculationPlan> plan_speculation(const PlanFacts& facts,
                                                            const PlanSettings& settings);

}  // namespace paceline::policy
