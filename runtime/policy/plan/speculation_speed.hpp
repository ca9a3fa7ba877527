// Foreseen speed of a request that is drafted for: the model that plans and the draft ladder
// share (SpecActor, section 4.1, "Modeling TGS").
#pragma once

#include <functional>

#include "runtime/costs/cost_table.hpp"

namespace paceline::policy {

// Below, p is the probability, in [0, 1], that a drafted token is accepted given that those before
// it were; w is the drafting window, at least 1.

/// P(a, w): the probability that exactly the first a tokens of a window of w are accepted.
[[nodiscard]] double accepted_probability(double p, int a, int w);

// tau_w: tokens that a request gets in the time of one window, on average.
//
// SpecActor's formula counts a window that is refuted after `a` tokens as (a + 1) / 2: the a tokens
// and the target's own, in two periods, for the next window is drafted from a text that was not
// said, and the verifier has to wait for another. Its prose calls the sum "generated tokens" of a
// window, which would be a + 1; and a mean of tokens by period, taken window by window, is not
// tokens over periods. The renewal-reward theorem gives for the paper's own protocol
//
//   E[tokens] / E[periods] = ((1 - p^w) / (1 - p)) / (2 - p^w).
//
// Neither holds here, for our verifier does not wait (decoupled_pace()), and its tau is never below
// the second.

/// Progress of a request in a step of its verifier, on average.
struct Pace {
  double committed = 1;  ///< tokens
  double drafted = 0;    ///< drafted tokens that are verified
  double ahead = 0;      ///< share of the steps that have a draft, all of one length
};

/// Pace with drafter ranks (roles/drafter_rank.hpp, speculation/remote_drafter.hpp). The verifier
/// verifies drafts that have arrived and decodes plainly where none has; its own token after a
/// wholly accepted draft is checked against the next window's first. `drafting`: steps of the
/// verifier that drafting a window takes.
///
/// A window is of use n steps after its drafting began. n = 1 if the drafter gets through two
/// windows within a step; otherwise its calls and the steps drift past one another, a finished
/// window waits half a step for the next, and n = drafting + 1/2.
///
/// The request is either ahead, with w - n drafted tokens there, or behind, with none. Ahead, all w
/// tokens agree with the draft with probability p^w and it stays ahead; otherwise it falls behind.
/// Behind, it decodes n tokens plainly while a window is drafted, whose rest is of use if these
/// agree, with probability p^n. So it is ahead for the share p^n / (p^n + 1 - p^w) of the time, and
///
///   committed = 1 + ahead * (p + p^2 + ... + p^(w - n)) / n.
///
/// With n = 1 this is tau_w = ((1 - p^w) / (1 - p)) / (1 + p - p^w), and exact: where the paper's
/// verifier waits one period for a new window, ours has 1/p plain steps.
[[nodiscard]] Pace decoupled_pace(double p, int w, double drafting);

/// Tokens of a step that verifies w tokens drafted just before: w + 1 if all are accepted. (The
/// coupled model, which the paper leaves out.)
[[nodiscard]] double coupled_tau(double p, int w);

/// seconds(b) = slope * b + constant, by batch: D(b) and V_w(b) of the paper.
struct Affine {
  double slope = 0;
  double constant = 0;

  [[nodiscard]] double operator()(double batch) const { return slope * batch + constant; }
};

/// The line through the cost at a batch and at half of it (twice, of a batch below 2). The paper
/// fits one line over all batches. Costs bend where arithmetic begins to outweigh the reading of
/// weights, and are known at every batch: a local line gives the cost at hand exactly, and its
/// growth.
[[nodiscard]] Affine fit_affine(const std::function<double(double)>& seconds, double batch);

/// Costs of a verifier and a drafter. References are used during calls only.
struct SpeculationCosts {
  const CostTable& table;       ///< the verifier's
  const DrafterCosts& drafter;  ///< one of the table's, or of their kind
  double context = 0;           ///< positions that a request attends to, on average
  int max_batch = 64;           ///< requests of one call of the drafter

  /// Seconds of drafting w tokens for each of b requests: w * D(b) of the paper, but that the first
  /// token after a step costs more than a further one.
  [[nodiscard]] double window_seconds(int w, double b) const;
  /// V_w(b): seconds of a step that verifies w tokens of each of b requests, the last committed one
  /// among them.
  [[nodiscard]] double verify_seconds(int w, double b) const;
};

/// Foreseen speed of a way to generate.
struct Speed {
  double tokens_per_second = 0;  ///< TGS of the paper: of one request
  double committed = 1;          ///< tokens of a request in a step
  double step = 0;               ///< seconds from one step to the next
  double draft = 0;              ///< seconds of drafting a window
};

[[nodiscard]] Speed plain_speed(const CostTable& table, double context, double b);
/// Speed of drafting w tokens and verifying them, in turn.
[[nodiscard]] Speed coupled_speed(const SpeculationCosts& costs, double p, int w, double b);
/// TGS of a verifier with b requests whose drafter has `drafted_for` requests, its own and those of
/// other verifiers.
[[nodiscard]] Speed decoupled_speed(const SpeculationCosts& costs, double p, int w, double b,
                                    double drafted_for);

/// Algorithm 1, line 5: whether a window of w is worth considering. The paper goes up to
///
///   w_max = max(ceil(V' / D'), ceil(beta / alpha)),
///
/// beyond which drafting takes longer than verifying, whatever the batch, and a verifier that waits
/// gains nothing. Ours does not wait, so a larger window, whose first token costs more than the
/// others, may still gain a little: the search goes on to four times that bound, which misses
/// nothing. V and D are those of this w: the first window that is not useful ends the search.
[[nodiscard]] bool useful_window(const SpeculationCosts& costs, int w, double b,
                                 double drafted_for);

}  // namespace paceline::policy
