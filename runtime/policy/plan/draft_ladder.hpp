// Initial selection of a drafting method (SpecActor, section 4.2, "Draft ladder", "Initial
// selection").
#pragma once

#include <string>
#include <vector>

#include "runtime/core/draft_history.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/length/acceptance.hpp"

namespace paceline::policy {

/// A rung: a method's speedup with its best window at one acceptance.
struct LadderPoint {
  double acceptance = 0;
  double speedup = 1;  ///< over plain decoding; below 1: it slows down
  int window = 1;      ///< tokens of the best window
};

/// The ladder of one method.
struct Ladder {
  std::string method;               ///< as DrafterCosts names it
  std::vector<LadderPoint> points;  ///< by rising acceptance, from 0 to 1

  /// Speedup, linear between points. `acceptance`: in [0, 1].
  [[nodiscard]] double speedup(double acceptance) const;
};

/// The load that a ladder is for.
struct LadderLoad {
  double batch = 1;  ///< requests in a step
  double context = 0;
  int longest_draft = 8;
};

/// The ladder of every drafter of a table. The paper builds it offline: it runs drafters, and
/// simulates verification by marking tokens as accepted at random. `paceline profile` runs drafters
/// and verification, and writes their costs by batch and context, from which a ladder for every
/// load follows. The mean over random marks needs no sampling: it is coupled_speed(), with each
/// method drafting for the verifier's own batch. (A test draws random marks and finds the same
/// ladder.) A ladder is a pure function of the profile and is not stored. The commands profile and
/// check show the ladders that the initial selection uses.
[[nodiscard]] std::vector<Ladder> build_ladders(const CostTable& table, const LadderLoad& load);

struct RankedMethod {
  std::string method;
  double acceptance = 0;  ///< the history's, or kUnknownAcceptance
  double speedup = 1;
};

/// Initial selection: methods by falling speedup at the acceptance that the history has for each;
/// methods of equal speed in the ladders' order. In the paper a batch gets only the first method,
/// since every method needs the same verification (Figure 10b). Here one draft of a request is
/// verified, whichever method made it. So all methods stay, and are tried in this order
/// (app/assembly/speculation_choice.hpp). DraftLengthPolicy decides how far to draft, if at all.
[[nodiscard]] std::vector<RankedMethod> rank_methods(const std::vector<Ladder>& ladders,
                                                     const DraftHistory& history);

/// The ladders as lines of text, for the batch of `most`, for an eighth of it and for one request:
/// a row for each acceptance, a column for each method. Empty where the table has no drafters.
[[nodiscard]] std::string ladder_text(const CostTable& table, const LadderLoad& most);

}  // namespace paceline::policy
