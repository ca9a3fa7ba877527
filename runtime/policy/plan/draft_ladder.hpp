// Which drafting method to begin with (SpecActor, section 4.2, "Draft ladder", "Initial
// selection").
#pragma once

#include <string>
#include <vector>

#include "runtime/core/draft_history.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/length/acceptance.hpp"

namespace paceline::policy {

/// A rung: what a method makes of an acceptance.
struct LadderPoint {
  double acceptance = 0;
  double speedup = 1;  ///< over plain decoding; below 1: it slows down
  int window = 1;      ///< tokens, the best draft
};

/// One method.
struct Ladder {
  std::string method;               ///< of DrafterCosts
  std::vector<LadderPoint> points;  ///< by rising acceptance, of 0 to 1

  /// Linear between points. `acceptance` in [0, 1].
  [[nodiscard]] double speedup(double acceptance) const;
};

/// The load that a ladder is for.
struct LadderLoad {
  double batch = 1;  ///< requests of a step
  double context = 0;
  int longest_draft = 8;
};

/// The ladder of every drafter of a table. The paper builds it offline: drafters are run, and their
/// verification is simulated by marking tokens as accepted at random. `paceline profile` runs them,
/// and verification too, and what it writes is what they cost by batch and context: the ladder at
/// every load, not at that of one profiled run. The mean over such marks needs no sampling, it is
/// coupled_speed(), with each method drafting for the verifier's own batch (a test draws marks all
/// the same, and finds the ladder). A pure function of the file, so nothing of it is kept beside:
/// profile and check show the ladder that the initial selection climbs.
[[nodiscard]] std::vector<Ladder> build_ladders(const CostTable& table, const LadderLoad& load);

struct RankedMethod {
  std::string method;
  double acceptance = 0;  ///< as the history has it, or kUnknownAcceptance
  double speedup = 1;
};

/// Initial selection: the rate of each method in the history gives its speedup on the ladder; by
/// falling speedup, of equal ones in the ladders' order. In the paper a batch gets one method, the
/// first, for every method asks for the same verification (Figure 10b). Here a request has one
/// draft verified whichever method made it, so that all stay and this is the order in which they
/// are asked (app/assembly/speculation_choice.hpp); how far to draft, if at all, is
/// DraftLengthPolicy's.
[[nodiscard]] std::vector<RankedMethod> rank_methods(const std::vector<Ladder>& ladders,
                                                     const DraftHistory& history);

/// The ladders as lines of text, at this batch and at what is left of it towards the end: a row for
/// each acceptance, a column for each method. Empty where nothing drafts.
[[nodiscard]] std::string ladder_text(const CostTable& table, const LadderLoad& most);

}  // namespace paceline::policy
