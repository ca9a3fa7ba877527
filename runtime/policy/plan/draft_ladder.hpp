// Initial selection of a drafting method (SpecActor, section 4.2, "Draft ladder", "Initial
// selection").
#pragma once

#include <string>
#include <vector>

#include "runtime/core/draft_history.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/length/acceptance.hpp"

namespace paceline::policy {

/// A rung: a method's speedup with its best draft length at one acceptance.
struct LadderPoint {
  double acceptance = 0;
  double speedup = 1;    ///< over plain decoding; below 1: drafting slows down
  int draft_length = 1;  ///< tokens
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

/// Returns the ladder of each drafter of a table. The paper builds ladders offline: it runs
/// drafters, and simulates verification by marking tokens as accepted at random. `paceline profile`
/// times drafters and verification by batch and context, and a ladder for any load follows from
/// these costs. The mean over random marks needs no sampling: it is coupled_speed() of a method
/// that drafts for the verifier's own batch. (A test draws random marks and finds the same ladder.)
/// A ladder is a pure function of the profile and is not stored. The commands profile and check
/// show the ladders that the initial selection uses.
[[nodiscard]] std::vector<Ladder> build_ladders(const CostTable& table, const LadderLoad& load);

struct RankedMethod {
  std::string method;
  double acceptance = 0;  ///< the history's, or kUnknownAcceptance
  double speedup = 1;
};

/// Initial selection: orders methods by falling speedup at the acceptance that each has in the
/// history. Methods of equal speedup stay in the ladders' order. In the paper a batch gets only the
/// first method, because each further method needs the same verification again. Here one draft of a
/// request is verified, whichever method made it. So all methods stay, and are tried in this order
/// (app/assembly/speculation_choice.hpp). DraftLengthPolicy decides how far to draft, if at all.
[[nodiscard]] std::vector<RankedMethod> rank_methods(const std::vector<Ladder>& ladders,
                                                     const DraftHistory& history);

/// The ladders as lines of text, for the batch of `most`, for an eighth of it and for one request:
/// a row for each acceptance, a column for each method. Empty if the table has no drafters.
[[nodiscard]] std::string ladder_text(const CostTable& table, const LadderLoad& most);

}  // namespace paceline::policy
