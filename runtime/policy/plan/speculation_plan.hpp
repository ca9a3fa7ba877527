// Number of drafter ranks and their window (SpecActor, section 4.1, Algorithm 1).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/speculation_mode.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/plan/drain.hpp"

namespace paceline::policy {

/// A tensor-parallel degree and its costs: an element of the paper's set of verification
/// configurations.
struct VerifierConfiguration {
  int tp = 1;       ///< ranks of a group: g_v
  CostTable table;  ///< costs of a group of this degree, and of its drafters on one rank
};

/// A drafting method and the acceptance of its tokens: the paper's p.
struct DraftMethod {
  std::string name;  ///< as DrafterCosts names it
  double acceptance = 0;
  bool apart = true;  ///< worth drafter ranks; false if drafting costs next to nothing
};

struct PlanFacts {
  int ranks = 1;           ///< the paper's G
  double requests = 1;     ///< requests at the start of the run: the paper's B
  int max_batch = 64;      ///< limit on the requests that a group decodes at a time
  double context = 0;      ///< positions that a request attends to, on average, at the start
  int longest_draft = 8;   ///< tokens; no draft is longer
  int shortest_draft = 1;  ///< tokens of coupled drafts; if equal to longest_draft: a fixed length
  std::vector<VerifierConfiguration> verifiers;
  std::vector<DraftMethod> methods;  ///< a method is left out for tables without its costs
  double prompt = 0;                 ///< tokens of a prompt
  double longest_text = 0;           ///< tokens of the longest response
  /// Parts of the run (drain_of()). In each part a request attends to its prompt and to the share
  /// DrainPart::reached of `longest_text`. Empty: plans are compared by the start of the run alone,
  /// as in the paper.
  std::vector<DrainPart> drain = {};
  /// Costs of the larger groups that neighbouring groups may join into, by degree (growth.hpp).
  std::vector<VerifierConfiguration> joined = {};
  bool adapts = false;  ///< verifiers draft and verify only if it pays (length/goodput.hpp)
  /// Drafter ranks whose requests fit in one call send tokens one by one.
  bool one_by_one = false;
  bool outcomes = false;  ///< these ranks also draft branches (length/outcomes.hpp)
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
  int drafters = 0;      ///< drafter ranks; 0 unless decoupled
  int draft_length = 0;  ///< tokens of a draft (decoupled: of a window); 0: nothing is drafted
  std::string method;    ///< drafting method; empty: nothing is drafted
  /// Predicted for all groups together, over the whole run, or at its start if there is no `drain`.
  double tokens_per_second = 0;
  std::string explanation;  ///< how the estimate was made
  std::string settings;     ///< settings that select this plan: "speculation.mode=plain"
};

/// Algorithm 1: searches every degree, every number of drafter ranks and every window for the plan
/// that is predicted to be the fastest. By the same estimate it compares plain and coupled
/// decoding, because with few ranks a drafter rank may be worth less than one more verifier.
/// Returns one plan for each mode, degree, number of drafters and method, with its best length, by
/// falling speed. Of plans of equal speed the simpler comes first. Empty if the settings allow no
/// plan.
///
/// Departures from the paper:
/// - The paper gives each group drafters of its own, at least one. Here a drafter rank serves any
///   number of groups, so the search enumerates the drafter ranks of the whole job. Like the
///   paper's, it is pruned by the rule that drafters take no more ranks than verifiers.
/// - The paper compares the speed of one request, because it decodes all requests at once. Here a
///   group decodes `max_batch` requests at most, and plans are compared by all groups' tokens.
/// - The paper plans for the requests at the start. The best plan then may lose its gain when few
///   are left: on 16 GPUs with 512 requests a coupled plan decodes 1.15 times the tokens a second
///   of a decoupled plan at the start, and ends 1.15 to 1.23 times later. So plans are compared
///   over the parts of the run, with what the run does in each: drafts that adapt, groups that
///   join, tokens sent one by one, drafts for outcomes.
[[nodiscard]] std::vector<SpeculationPlan> plan_speculation(const PlanFacts& facts,
                                                            const PlanSettings& settings);

}  // namespace paceline::policy
