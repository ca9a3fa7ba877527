// Predicted speed of a request that is drafted for: the model that speculation plans and the draft
// ladder share (SpecActor, section 4.1, "Modeling TGS").
#pragma once

#include <functional>

#include "runtime/costs/cost_table.hpp"

namespace paceline::policy {

// Below, p is the probability, in [0, 1], that a drafted token is accepted given that the drafted
// tokens before it were; w >= 1 is the number of tokens in a draft, or in a decoupled window.

// tau_w: tokens that a request gets in the time of one window, on average.
//
// SpecActor's formula counts a window that is refuted after `a` tokens as (a + 1) / 2 tokens: the a
// tokens and the target's own, in two periods. The second is needed because the next window follows
// refuted text, and the verifier must wait for another. The paper's text calls the sum "generated
// tokens" of a window, which would be a + 1. Besides, the mean of tokens / periods over windows is
// not all tokens / all periods. For the paper's protocol the renewal-reward theorem gives
//
//   E[tokens] / E[periods] = ((1 - p^w) / (1 - p)) / (2 - p^w).
//
// Neither formula holds here, because our verifier does not wait (decoupled_pace()). Its tau is
// never below the second formula's.

/// Progress of a request in a step of its verifier, on average.
struct Pace {
  double committed = 1;  ///< tokens
  double drafted = 0;    ///< drafted tokens that the step verifies
  double ahead = 0;      ///< share of steps with a draft; all drafts are assumed equally long
};

/// Pace with drafter ranks (roles/drafter_rank.hpp, speculation/remote_drafter.hpp). The verifier
/// verifies drafts that have arrived, and decodes plainly if none has. After a wholly accepted
/// draft, its own token is checked against the first token of the next window. `drafting`: time of
/// drafting a window, in steps of the verifier.
///
/// A window arrives n steps after its drafting began. n = 1 if the drafter gets through two windows
/// within a step. Otherwise its calls drift against the steps, a finished window waits half a step
/// on average for the next step, and n = drafting + 1/2.
///
/// A request is either ahead, with w - n drafted tokens that have arrived, or behind, with none. A
/// request that is ahead stays ahead with probability p^w, if all w tokens agree with the draft;
/// otherwise it falls behind. A request that is behind decodes n tokens plainly while a window is
/// drafted. With probability p^n these agree with the first n drafted tokens, and the request is
/// ahead again, by the window's rest. So it is ahead for the share p^n / (p^n + 1 - p^w) of the
/// time, and
///
///   committed = 1 + ahead * (p + p^2 + ... + p^(w - n)) / n.
///
/// With n = 1 this is tau_w = ((1 - p^w) / (1 - p)) / (1 + p - p^w), which is exact. Where the
/// paper's verifier waits one period for a new window, ours makes 1/p plain steps on average.
[[nodiscard]] Pace decoupled_pace(double p, int w, double drafting);

/// Branches that an eager drafter rank drafts in addition to a chain (policy/length/outcomes.hpp).
struct Branching {
  double second = 0;  ///< probability that the second choice is right if the first is wrong
  int drafted = 0;    ///< number of leading tokens of the chain at which a branch leaves it
  int tried = 0;      ///< number of these branches verified with the chain, as one tree
};

/// Pace with an eager drafter rank: it sends each token by itself (protocol::DraftWindow). The
/// tokens that it drafts during a step have arrived when the step ends, so n = 1. A step verifies
/// w - 1 tokens of the chain, and branches end at the same depth.
///
/// The target leaves the chain after k tokens with probability p^k (1 - p). If no branch leaves it
/// there by the right token, the request falls behind. If such a branch was not tried, it becomes
/// the chain, and the request stays ahead. If it was tried, those of its tokens that agree count in
/// the same step. The request then stays ahead if all of them agree and the target's own token does
/// too: branches have no branches. A request that is behind is ahead again if the first token of
/// the next chain agrees, or the first token of a branch there.
[[nodiscard]] Pace eager_pace(double p, int w, const Branching& branches);

/// Mean number of tokens that a request gets from a step that verifies w tokens drafted just
/// before; w + 1 if all are accepted. (This is the coupled model, which the paper leaves out.)
[[nodiscard]] double coupled_tau(double p, int w);

/// Seconds as a function of the batch b, slope * b + constant: D(b) and V_w(b) of the paper.
struct Affine {
  double slope = 0;
  double constant = 0;

  [[nodiscard]] double operator()(double batch) const { return slope * batch + constant; }
};

/// The line through the cost at `batch` and the cost at half of it, or at twice of it below 2. The
/// paper fits one line over all batches. Cost curves bend where arithmetic begins to outweigh the
/// reading of weights. Costs are known at every batch, so a local line gives the exact cost at
/// `batch`, and its slope there.
[[nodiscard]] Affine fit_affine(const std::function<double(double)>& seconds, double batch);

/// Costs of a verifier and a drafter. The references must be valid during calls only.
struct SpeculationCosts {
  const CostTable& table;       ///< costs of the verifier
  const DrafterCosts& drafter;  ///< costs of the drafter, in the table or not
  double context = 0;           ///< positions that a request attends to, on average
  int max_batch = 64;           ///< requests of one call of the drafter

  /// Seconds of drafting w tokens for each of b requests: w * D(b) of the paper, except that here
  /// the first token after a step costs more than a further one.
  [[nodiscard]] double window_seconds(int w, double b) const;
  /// V_w(b): seconds of a step with w rows for each of b requests: the last committed token and
  /// w - 1 drafted ones.
  [[nodiscard]] double verify_seconds(int w, double b) const;
};

/// Predicted speed of a way to generate.
struct Speed {
  double tokens_per_second = 0;  ///< tokens a second of one request: TGS of the paper
  double committed = 1;          ///< tokens that a request gets in a step
  double step = 0;               ///< seconds from one step to the next
  double draft = 0;              ///< seconds of drafting w tokens
};

[[nodiscard]] Speed plain_speed(const CostTable& table, double context, double b);
/// Speed of drafting w tokens and verifying them, one after the other.
[[nodiscard]] Speed coupled_speed(const SpeculationCosts& costs, double p, int w, double b);
/// As coupled_speed(), but verifiers choose each request's draft length by how its drafts have
/// fared: a third of the drafts has w - 1 tokens, a third w, and a third w + 1, but none more than
/// `longest`. The drafter is called until the longest draft of the batch is made. In simulated runs
/// (specactor-lognormal.yaml) a step has 1 to 2 calls more than a request's mean number of drafted
/// tokens.
[[nodiscard]] Speed uneven_coupled_speed(const SpeculationCosts& costs, double p, int w,
                                         int longest, double b);
/// Speed of a verifier with b requests whose drafter drafts for `drafted_for` requests: the
/// verifier's own and those of other verifiers.
[[nodiscard]] Speed decoupled_speed(const SpeculationCosts& costs, double p, int w, double b,
                                    double drafted_for);

/// Speed of a verifier with b requests whose drafter is eager and has `drafted_for` requests
/// (eager_pace()): the best over all numbers of branches and all chains of up to `longest` tokens
/// that are drafted during a step. `second`: Branching::second; 0: no branches are drafted.
[[nodiscard]] Speed eager_speed(const SpeculationCosts& costs, double p, int longest, double b,
                                double drafted_for, double second);

/// Algorithm 1, line 5: whether a window of w is worth considering. The paper goes up to
///
///   w_max = max(ceil(V' / D'), ceil(beta / alpha)),
///
/// with V' and D' the slopes and beta and alpha the constants of V and D. Beyond it drafting takes
/// longer than verifying for every batch, and a verifier that waits gains nothing. Ours does not
/// wait and may still gain a little. So the search goes on to four times this bound, which misses
/// nothing. V and D are for this w. The first window that is not useful ends the search.
[[nodiscard]] bool useful_window(const SpeculationCosts& costs, int w, double b,
                                 double drafted_for);

}  // namespace paceline::policy
