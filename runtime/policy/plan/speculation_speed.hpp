// How fast a request grows when it is drafted for: the model that plans, reconfiguration and the
// draft ladder share (SpecActor, section 4.1, "Modeling TGS").
#pragma once

#include <functional>

#include "runtime/costs/cost_table.hpp"

namespace paceline::policy {

// In what follows p is the probability that a drafted token is accepted given that those before it
// were, in [0, 1], and w the drafting window, at least 1.

/// P(a, w): that of a window of w tokens the first a are accepted, and no more.
[[nodiscard]] double accepted_probability(double p, int a, int w);

// tau_w: tokens that a request gets in the time of one window, on average.
//
// SpecActor's formula counts a window that is refuted after `a` tokens as (a + 1) / 2: the a tokens
// and the target's own, in two periods, for the next window is drafted from a text that was not
// said, and the verifier has to wait for another. Its prose calls the sum "generated tokens" of a
// window, which would be a + 1; and a mean of tokens by period, taken window by window, is not
// tokens over periods. What follows from the paper's own protocol, by the theorem of renewal and
// reward, is
//
//   E[tokens] / E[periods] = ((1 - p^w) / (1 - p)) / (2 - p^w).
//
// Neither is what happens here, for our verifier does not wait (decoupled_pace()). The two are here
// to be compared with; nothing decides by them.
[[nodiscard]] double paper_tau(double p, int w);
[[nodiscard]] double waiting_tau(double p, int w);

/// What a request does in a step of its verifier, on average.
struct Pace {
  double committed = 1;  ///< tokens
  double drafted = 0;    ///< drafted tokens that are verified
  double ahead = 0;      ///< share of the steps in which there is a draft, all alike long
};

/// Of drafter ranks that work as ours do (roles/drafter_rank.hpp, speculation/remote_drafter.hpp): the
/// verifier verifies what has arrived and decodes plainly where nothing has, and its own token
/// after a draft that was accepted as a whole is held against the next window's first. `drafting`:
/// how long a window takes to draft, in steps of the verifier.
///
/// A window is of use n steps after its drafting began: n = 1 if the drafter is through with two of
/// them within a step; otherwise its calls and the steps drift past one another, and a window that
/// is done waits half a step for the next, so that n = drafting + 1/2.
///
/// The request is either ahead, with w - n drafted tokens there, or it is behind and has none.
/// Ahead, all w tokens agree with what was drafted with probability p^w and it stays ahead;
/// otherwise it falls behind. Behind, it decodes n tokens plainly while a window is drafted, of
/// which the rest is of use if they agree, with probability p^n. So it is ahead for the share
/// p^n / (p^n + 1 - p^w) of the time, and
///
///   committed = 1 + ahead * (p + p^2 + ... + p^(w - n)) / n.
///
/// With n = 1 this is tau_w = ((1 - p^w) / (1 - p)) / (1 + p - p^w), and exact: where the paper's
/// verifier waits one period for a new window, ours has 1/p plain steps.
[[nodiscard]] Pace decoupled_pace(double p, int w, double drafting);

/// Of drafted tokens those that come to nothing, for each that is committed; fewer where the
/// drafter is not through with two windows within a step. A refutation after a tokens wastes 2w - 1
/// - a of them, those of a window that was refuted while the request was behind all 2w - 1.
[[nodiscard]] double decoupled_waste(double p, int w);

/// Tokens of a step that verifies w tokens which were drafted just before: w + 1 if all are
/// accepted. (The coupled model, which the paper leaves out.)
[[nodiscard]] double coupled_tau(double p, int w);

/// seconds(b) = slope * b + constant, by batch: D(b) and V_w(b) of the paper.
struct Affine {
  double slope = 0;
  double constant = 0;

  [[nodiscard]] double operator()(double batch) const { return slope * batch + constant; }
};

/// The line through the cost at a batch and at half of it (twice, of a batch below 2). The paper
/// fits one line over all batches. Costs bend where arithmetic begins to outweigh the reading of
/// weights, and are known at every batch: a line of the neighbourhood says what the batch at hand
/// costs, exactly, and how that grows.
[[nodiscard]] Affine fit_affine(const std::function<double(double)>& seconds, double batch);

/// What a verifier and a drafter cost. References are used during calls only.
struct SpeculationCosts {
  const CostTable& table;       ///< the verifier's
  const DrafterCosts& drafter;  ///< one of the table's, or like them
  double context = 0;           ///< positions that a request attends to, on average
  int max_batch = 64;           ///< requests of one call of the drafter

  /// Of drafting w tokens for each of b requests: w * D(b) of the paper, but that the first token
  /// after a step costs more than a further one.
  [[nodiscard]] double window_seconds(int w, double b) const;
  /// V_w(b): of a step that verifies w tokens of each of b requests, the last committed one among
  /// them.
  [[nodiscard]] double verify_seconds(int w, double b) const;
};

/// A way to generate, as foreseen.
struct Speed {
  double tokens_per_second = 0;  ///< of one request: TGS of the paper
  double committed = 1;          ///< tokens of a request in a step
  double step = 0;               ///< seconds from one step to the next
  double draft = 0;              ///< seconds of drafting a window
};

[[nodiscard]] Speed plain_speed(const CostTable& table, double context, double b);
/// Drafting w tokens and verifying them, in turn.
[[nodiscard]] Speed coupled_speed(const SpeculationCosts& costs, double p, int w, double b);
/// TGS of a verifier with b requests whose drafter has `drafted_for` requests, its own and those of
/// other verifiers.
[[nodiscard]] Speed decoupled_speed(const SpeculationCosts& costs, double p, int w, double b,
                                    double drafted_for);

/// Algorithm 1, line 5: whether w is worth a thought. The paper goes up to
///
///   w_max = max(ceil(V' / D'), ceil(beta / alpha)),
///
/// from where on drafting takes longer than verifying, whatever the batch, and a verifier that
/// waits gains nothing. Ours does not wait, so that a larger window, whose first token costs more
/// than the others, may still gain a little: we go on to four times that, which misses nothing. V
/// and D are those of this w: the first that is not useful ends the search.
[[nodiscard]] bool useful_window(const SpeculationCosts& costs, int w, double b,
                                 double drafted_for);

}  // namespace paceline::policy
