// Drafts for outcomes: which branches a drafter rank drafts beside its requests' chains.
//
// While a draft is verified, nobody knows where the target will leave it. A branch leaves the chain
// for the drafter's second choice at one place, and is of use where the target says its tokens up
// to there and then the second choice: with the chance p1 p2 ... pk (1 - pk+1) h, where p are the
// chances that a token of the chain is the target's, and h is the share of second choices that are
// right where the first are wrong.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/costs/cost_table.hpp"

namespace paceline::policy {

/// Share of second choices of draft models that are right where the first ones are wrong, of a
/// drafter of which nothing is known: the embedded pair's at temperature 1 with shared noise
/// (tests/bench/README.md).
inline constexpr double kSecondChoice = 0.68;

/// Tokens that a call of a drafter drafts in any case, one a row.
struct SureDrafts {
  double rows = 0;
  double tokens = 0;   ///< of them that the target will say, on average
  double context = 0;  ///< positions that a row attends to, on average
  double answers = 0;  ///< messages of verifiers a second, after which there is more to draft
};

/// The number of further rows that make a call draft the most tokens a second that the target will
/// say. A call without sure rows must not wait for them: where an answer comes while it runs, it
/// delays the next sure row by half of itself, on average, and so costs half a token. chances: of
/// each, falling: that the target says the text that its token follows. `calls`: seconds of a call
/// by rows; without points nothing is known to pay.
[[nodiscard]] std::size_t outcomes_that_pay(const CostCurve& calls, const SureDrafts& sure,
                                            std::span<const double> chances);

}  // namespace paceline::policy
