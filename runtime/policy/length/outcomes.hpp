// Drafts for outcomes: the branches that a drafter rank drafts in addition to its requests' chains.
//
// While a draft is verified, it is unknown where the target will leave it. A branch follows the
// chain for k tokens and then takes the drafter's second choice. It is useful if the target says
// these k tokens and then the second choice, which has the probability p1 p2 ... pk (1 - pk+1) h.
// Here pi is the probability that the chain's i-th token is the target's, and h is the share of
// second choices that are right if the first ones are wrong.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/costs/cost_table.hpp"

namespace paceline::policy {

/// Share of second choices that are right where the first ones are wrong, assumed of a draft model
/// of which nothing is known. It was measured with the embedded pair at temperature 1 with shared
/// noise (tests/bench/README.md).
inline constexpr double kSecondChoice = 0.68;

/// Probability of a text below which no branch continues it, even where drafting is free.
inline constexpr double kLeastChance = 0.01;

/// Tokens that a call of a drafter drafts in any case, one token a row.
struct SureDrafts {
  double rows = 0;
  double tokens = 0;   ///< tokens of these rows that the target will say, on average
  double context = 0;  ///< positions that a row attends to, on average
  double answers = 0;  ///< messages a second from verifiers; after each there is more to draft
};

/// Number of further rows with which a call drafts the most tokens a second that the target will
/// say. A call without sure rows has a cost too: where an answer comes while it runs, it delays the
/// next sure row by half of its own time, on average, and so costs half a token. `chances`: for
/// each further row, in falling order, the probability that the target says the text before the
/// row's token. `calls`: seconds of a call by rows; without points the result is 0.
[[nodiscard]] std::size_t outcomes_that_pay(const CostCurve& calls, const SureDrafts& sure,
                                            std::span<const double> chances);

}  // namespace paceline::policy
