#include "runtime/policy/plan/speculation_speed.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::policy {
namespace {

/// 1 + p + ... + p^(n - 1); n need not be an integer.
double geometric_sum(double p, double n) { return p < 1 ? (1 - std::pow(p, n)) / (1 - p) : n; }

/// Limit on the rounds of the fixed-point iteration for a step's seconds. It ends earlier if a
/// round changes nothing.
constexpr int kRounds = 32;
/// Calls of a drafter during a step whose tokens the next step does not verify: the call for the
/// token that this step says itself, and the call under way when the step began, half of which is
/// left on average. The half is left out, because lengths are rounded down to whole tokens.
constexpr double kLate = 1;
/// Windows are searched up to this many times the paper's bound. The bound itself lost up to 7 % of
/// speed in the cases tried, because a verifier that does not wait still gains beyond it. Four
/// times the bound lost nothing against a search of all windows in 3,000 random cases.
constexpr double kFurther = 4;

}  // namespace

Pace decoupled_pace(double p, int w, double drafting) {
  const double n = std::max(1.0, drafting + 0.5);
  if (p == 0 || n >= w) return {};  // no draft arrives in time
  const double catches_up = std::pow(p, n);
  const double ahead = catches_up / (catches_up + 1 - std::pow(p, w));
  return {1 + ahead * p * geometric_sum(p, w - n) / n, ahead * (w - n) / n, ahead / n};
}

// All sums over k, the tokens after which the target leaves the chain, are geometric.
Pace eager_pace(double p, int w, const Branching& branches) {
  const int depth = w - 1;
  // A branch at the chain's last token has no tokens after its first, and is not tried.
  const int tried = std::max(0, std::min(branches.tried, depth - 1));
  const int foreseen = std::min(branches.drafted, w);
  const double whole = std::pow(p, depth);
  // The branch after k < foreseen tokens is right with probability p^k (1 - p) second. One that was
  // tried has depth - k tokens, and all must agree for the request to stay ahead. The sum of
  // p^k - p^depth over those that were tried counts the tokens that agree.
  const int both = std::min(tried, foreseen);
  const double of_tried = both > 0 ? geometric_sum(p, both) - both * whole : 0;
  // Tokens of the chain or of a tried branch, while ahead.
  const double agreed = p * geometric_sum(p, depth) + branches.second * of_tried;
  // Rows of drafted tokens, while ahead.
  const double rows = depth + tried * depth - 0.5 * tried * (tried - 1);
  const double stays = whole * p + branches.second * (1 - std::pow(p, foreseen)) -
                       branches.second * (1 - p) * of_tried;
  const double returns = p + (branches.drafted > 0 ? (1 - p) * branches.second : 0);
  const double ahead = returns > 0 ? returns / (returns + 1 - stays) : 0;
  return {1 + ahead * agreed, ahead * rows, ahead};
}

double coupled_tau(double p, int w) { return geometric_sum(p, w + 1); }

Affine fit_affine(const std::function<double(double)>& seconds, double batch) {
  const double other = batch < 2 ? 2 * batch : batch / 2;
  const double here = seconds(batch);
  const double slope = (here - seconds(other)) / (batch - other);
  return {slope, here - slope * batch};
}

double SpeculationCosts::window_seconds(int w, double b) const {
  const double calls = std::ceil(b / max_batch);
  const double each = b / calls;
  return calls *
         (drafter.first.seconds(each, context) + (w - 1) * drafter.round.seconds(each, context));
}

double SpeculationCosts::verify_seconds(int w, double b) const {
  return table.step_seconds(
      {.requests = b, .drafted = b * (w - 1), .prefill_rows = 0, .context = context});
}

Speed plain_speed(const CostTable& table, double context, double b) {
  Speed speed;
  speed.step =
      table.step_seconds({.requests = b, .drafted = 0, .prefill_rows = 0, .context = context});
  speed.tokens_per_second = 1 / speed.step;
  return speed;
}

Speed coupled_speed(const SpeculationCosts& costs, double p, int w, double b) {
  Speed speed;
  speed.draft = costs.window_seconds(w, b);
  speed.step = speed.draft + costs.verify_seconds(w + 1, b);
  speed.committed = coupled_tau(p, w);
  speed.tokens_per_second = speed.committed / speed.step;
  return speed;
}

// If a call has less than one request on average, it is made in this share of the steps.
Speed uneven_coupled_speed(const SpeculationCosts& costs, double p, int w, int longest, double b) {
  const int lengths[] = {w - 1, w, std::min(w + 1, longest)};
  Speed speed;
  speed.committed = 0;
  double drafted = 0;  // tokens of a request
  for (const int length : lengths) {
    speed.committed += coupled_tau(p, length) / 3;
    drafted += length / 3.0;
  }
  for (int token = 1; token <= lengths[2]; ++token) {
    const auto longer = std::ranges::count_if(lengths, [&](int length) { return length >= token; });
    const double requests = b * static_cast<double>(longer) / 3;
    const CostCurve& call = token == 1 ? costs.drafter.first : costs.drafter.round;
    speed.draft += std::min(1.0, requests) * call.seconds(std::max(1.0, requests), costs.context);
  }
  speed.step =
      speed.draft +
      costs.table.step_seconds(
          {.requests = b, .drafted = b * drafted, .prefill_rows = 0, .context = costs.context});
  speed.tokens_per_second = speed.committed / speed.step;
  return speed;
}

// The seconds of a step depend on the share of requests that are ahead, and this share depends on
// the number of steps that drafting a window takes. Iteration finds both, beginning with a drafter
// that keeps up.
Speed decoupled_speed(const SpeculationCosts& costs, double p, int w, double b,
                      double drafted_for) {
  Speed speed;
  speed.draft = costs.window_seconds(w, drafted_for);
  Pace pace = decoupled_pace(p, w, 0);
  for (int round = 0; round < kRounds; ++round) {
    const double before = speed.step;
    speed.step = costs.table.step_seconds(
        {.requests = b, .drafted = b * pace.drafted, .prefill_rows = 0, .context = costs.context});
    if (speed.step == before) break;
    pace = decoupled_pace(p, w, speed.draft / speed.step);
  }
  speed.committed = pace.committed;
  speed.tokens_per_second = speed.committed / speed.step;
  return speed;
}

Speed eager_speed(const SpeculationCosts& costs, double p, int longest, double b,
                  double drafted_for, double second) {
  Speed best = plain_speed(costs.table, costs.context, b);
  best.draft = costs.window_seconds(1, drafted_for);
  for (int depth = 1; depth <= longest; ++depth) {
    double branch_rows = 0;  // of all calls during a step, for a request
    for (int drafted = 0; drafted <= (second > 0 ? depth : 0); ++drafted) {
      if (drafted > 0) branch_rows += depth - drafted;
      const double call = costs.window_seconds(1, drafted_for * (1 + branch_rows / depth));
      bool in_time = false;
      const auto consider = [&](int tried) {
        const Pace pace = eager_pace(p, depth + 1, {second, drafted, tried});
        const double step = costs.table.step_seconds({.requests = b,
                                                      .drafted = b * pace.drafted,
                                                      .prefill_rows = 0,
                                                      .context = costs.context});
        if ((depth + kLate) * call > step) return;
        in_time = true;
        if (pace.committed / step <= best.tokens_per_second) return;
        best.committed = pace.committed;
        best.step = step;
        best.tokens_per_second = pace.committed / step;
      };
      consider(0);
      if (drafted > 0) consider(drafted);
      if (!in_time && drafted == 0) return best;  // longer chains come too late as well
      if (!in_time) break;                        // calls for more branches take longer
    }
  }
  return best;
}

bool useful_window(const SpeculationCosts& costs, int w, double b, double drafted_for) {
  const double share = drafted_for / b;  // the drafter's requests over the verifier's
  const Affine draft =
      fit_affine([&](double batch) { return costs.window_seconds(w, batch * share) / w; }, b);
  const Affine verify = fit_affine([&](double batch) { return costs.verify_seconds(w, batch); }, b);
  // If verifying lacks the term (its coefficient is 0), the bound is 1. If only drafting lacks it,
  // there is no bound.
  const auto bound = [](double of, double by) {
    if (of <= 0) return 1.0;
    return by > 0 ? std::ceil(of / by) : HUGE_VAL;
  };
  return w <= kFurther * std::max(bound(verify.slope, draft.slope),
                                  bound(verify.constant, draft.constant));
}

}  // namespace paceline::policy
