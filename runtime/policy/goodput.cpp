#include "runtime/policy/goodput.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::policy {
namespace {

constexpr double kBegin = 1.05;    ///< speedup at which speculation begins; it goes on above 1
constexpr double kSpared = 0.005;  ///< share of the time that trials may cost
constexpr double kAllowance = 8;   ///< plain steps that trials may cost besides, at the start
/// Trials in a row that changed nothing, for each of which the next must wait twice as long.
constexpr int kMostConfirmed = 3;
constexpr int kProbeSteps = 3;            ///< of a trial with one request
constexpr double kLeastLoss = 0.03;       ///< of a step, that a trial counts as
constexpr int kLookInterval = 16;         ///< plain steps between two thoughts of drafting
constexpr int kHorizon = 128;             ///< tokens that catching up must pay off within
constexpr double kYieldMemory = 1000;     ///< tokens
constexpr double kNextToNothing = 0.003;  ///< of a plain step
/// Share of the tokens refused to a path that one more path may catch, and of those that it leaves
/// for the next. Seer's table 2 and bench_draft have 4 to 10 %; some requests have more, and
/// select() judges what is found.
constexpr double kCaught = 0.15;

}  // namespace

void PaceRatio::observe(double ratio) {
  recent_[static_cast<std::size_t>(count_ % kSteps)] = ratio;
  count_ = count_ + 1 < 2 * kSteps ? count_ + 1 : kSteps;
}

double PaceRatio::value() const {
  if (count_ == 0) return 1;
  std::array<double, kSteps> sorted = recent_;
  const auto end = sorted.begin() + std::min(count_, kSteps);
  const auto middle = sorted.begin() + (std::min(count_, kSteps) - 1) / 2;
  std::nth_element(sorted.begin(), middle, end);
  return *middle;
}

Goodput::Goodput(CostTable costs, int max_length)
    : costs_(std::move(costs)), max_length_(max_length) {}

double Goodput::step_seconds(double drafted) const {
  StepShape shape = step_.shape;
  shape.drafted = drafted;
  return costs_.step_seconds(shape);
}

double Goodput::speculative_ratio() const {
  return speculative_.known() ? speculative_.value() : plain_.value();
}

/// Of a rate by the table, against plain decoding.
double Goodput::speedup(double rate) const {
  return rate / speculative_ratio() * plain_.value() * step_seconds(0) / step_.shape.requests;
}

/// Steps after a change between drafting and not that tell little: they find in the caches what
/// the others left there, and the more requests, the more of their KV has to come back.
int Goodput::settling() const { return 1 + static_cast<int>(step_.shape.requests) / 8; }

bool Goodput::considers(const DraftQuery& query) {
  step_ = {};
  step_.shape = plain_step(query);
  if (query.requests == 0) return false;
  const double plain = step_seconds(0);
  spare_ += (spare_ == 0 ? kAllowance : kSpared) * plain;
  return on_ || trial_ > 0 || cheap() || ++unlooked_ >= kLookInterval;
}

/// Drafting for all costs next to nothing, so that it is asked for whatever choose() expects:
/// select() sees what the drafter thinks of each token.
bool Goodput::cheap() const {
  const double n = step_.shape.requests;
  const double seconds = costs_.first_seconds(n, step_.shape.context) +
                         (max_length_ - 1) * costs_.round_seconds(n, step_.shape.context);
  const bool lags = std::any_of(costs_.drafters.begin(), costs_.drafters.end(),
                                [](const DrafterCosts& d) { return !d.catch_up.empty(); });
  return !lags && seconds <= kNextToNothing * step_seconds(0);
}

/// The best prefix of the candidates listed in worth_.
DraftPlan Goodput::best_plan(const DraftQuery& query) {
  planner_.list(query, worth_, max_length_);
  prices_.of_steps(costs_, query, planner_.candidates().size(), yield_.estimate(1, max_length_));
  return planner_.best(query, prices_);
}

/// Leaves out requests whose drafter is further behind than pays; false when none is left, but for
/// the one that is least behind.
bool Goodput::leave_out_laggards(const DraftQuery& query, double speedup) {
  const double saved = std::max(0.0, 1 - 1 / speedup) * step_seconds(0) / query.requests;
  const double behind = std::accumulate(query.lag.begin(), query.lag.end(), 0.0);
  const double second = costs_.catch_up_seconds(behind, query.context) / std::max(1.0, behind);
  bool any = false;
  for (int r = 0; r < query.requests; ++r) {
    const int lag = query.lag[r];
    if (lag <= max_length_ || second * lag < saved * kHorizon) {
      any = any || worth_[r] > 0;
    } else {
      worth_[r] = 0;
    }
  }
  if (any) return true;
  const auto least = std::min_element(query.lag.begin(), query.lag.end()) - query.lag.begin();
  worth_[least] = 1;
  return false;
}

DraftPlan Goodput::plan(const DraftQuery& query) {
  prices_.of_drafting(costs_, query);
  worth_.assign(query.requests, yield_.estimate(1, max_length_));
  DraftPlan plan = best_plan(query);
  const bool lags =
      std::any_of(query.lag.begin(), query.lag.end(), [&](int lag) { return lag > max_length_; });
  if (!lags) return plan;
  const bool pays = leave_out_laggards(query, speedup(plan.rate));
  plan = best_plan(query);
  if (!pays) plan.rate = 0;
  return plan;
}

/// Begins one when its loss, as foretold, is there to spend.
void Goodput::consider_trial(const DraftQuery& query, const DraftPlan& plan) {
  if (plan.tokens == 0) return;
  const double plain = step_seconds(0);
  const double as_plain = plain * (query.requests + plan.gain) / query.requests;
  const double speculative = plan.seconds * speculative_ratio() / plain_.value();
  const double loss = on_ ? plain * (1 - speculative / as_plain) : speculative - as_plain;
  // Long enough to settle and to turn the ratio; but what one request tells is its acceptance.
  const int steps = plan.rate > 0 ? settling() + PaceRatio::kSteps / 2 + 1 : kProbeSteps;
  double total = steps * std::max(loss, kLeastLoss * plain);
  if (!on_) {
    double behind = 0;
    planner_.for_each(plan, [&](const DraftCandidate& candidate) {
      if (candidate.depth == 1 && !query.lag.empty()) behind += query.lag[candidate.request];
    });
    total += costs_.catch_up_seconds(behind, query.context);
  }
  total *= 1 << confirmed_;
  if (total > spare_) return;
  spare_ -= total;
  trial_ = steps;
  confirmed_ = std::min(confirmed_ + 1, kMostConfirmed);
}

void Goodput::choose(const DraftQuery& query, std::span<int> lengths) {
  std::fill(lengths.begin(), lengths.end(), 0);
  unlooked_ = 0;
  const DraftPlan best = plan(query);
  if (trial_ == 0) {
    const bool pays = best.rate > 0 && speedup(best.rate) > (on_ ? 1 : kBegin);
    if (pays != on_) confirmed_ = 0;
    on_ = pays;
    if (query.prefill_rows == 0) consider_trial(query, best);
  }
  const bool trial = trial_ > 0;
  if (trial) --trial_;
  if (on_ ? trial : !trial && !cheap()) return;
  step_.row = row_price(query, best);
  if (!on_ && trial) step_.at_least = best.tokens;
  if (cheap()) {
    for (int r = 0; r < query.requests; ++r)
      lengths[r] = std::min(max_length_, query.longest_draft[r]);
  } else {
    planner_.for_each(best, [&](const DraftCandidate& c) { lengths[c.request] = c.depth; });
  }
  ask(query, lengths);
}

/// What a further row must be worth for goodput not to fall: at that rate its seconds make as much.
/// Several rows are looked at together, for the table may rise in steps.
double Goodput::row_price(const DraftQuery& query, const DraftPlan& plan) const {
  const double rows = yield_.estimate(1, max_length_) * plan.tokens;
  const double more = query.requests;
  const double seconds = (step_seconds(rows + more) - step_seconds(rows)) / more;
  return std::max(plan.rate, query.requests / step_seconds(0)) * std::max(0.0, seconds);
}

int Goodput::paths(const DraftQuery& query, int request, int most) const {
  int paths = 1;
  double caught = (1 - query.acceptance[request]) * kCaught;
  while (paths < most && caught > step_.row) {
    ++paths;
    caught *= 1 - kCaught;
  }
  return paths;
}

void Goodput::ask(const DraftQuery& query, std::span<const int> lengths) {
  std::vector<int> in_round(static_cast<std::size_t>(max_length_) + 1);
  double behind = 0;
  for (int r = 0; r < query.requests; ++r) {
    step_.asked += lengths[r];
    for (int i = 0; i < lengths[r]; ++i) ++in_round[i];
    if (lengths[r] > 0 && !query.lag.empty()) behind += query.lag[r];
  }
  step_.draft_seconds = prices_.first[in_round[0]];
  for (std::size_t i = 1; i < in_round.size(); ++i)
    step_.draft_seconds += prices_.round[in_round[i]];
  step_.catch_up = costs_.catch_up_seconds(behind, query.context);
}

void Goodput::select(const DraftQuery& query, const DraftedTokens& drafted,
                     std::span<std::uint8_t> keep) {
  step_.found = static_cast<int>(drafted.values.size());
  order_by_value(drafted, order_);
  const double correction = speculative_ratio() / plain_.value();
  double gain = 0;
  double best_rate = (on_ ? 1 : kBegin) * query.requests / (step_.draft_seconds + step_seconds(0));
  int best = 0;
  for (int i = 0; i < step_.found; ++i) {
    gain += drafted.values[order_[i]];
    const double seconds = (step_.draft_seconds + step_seconds(i + 1)) * correction;
    const double rate = (query.requests + gain) / seconds;
    if (rate > best_rate) {
      best_rate = rate;
      best = i + 1;
    }
  }
  best = std::max(best, std::min(step_.at_least, step_.found));
  std::fill(keep.begin(), keep.end(), 0);
  for (int i = 0; i < best; ++i) keep[order_[i]] = 1;
}

void Goodput::observe(const StepOutcome& measured) {
  if (step_.shape.requests == 0) return;
  const bool drafted = measured.draft_rows > 0;
  alike_ = drafted == drafted_ ? alike_ + 1 : 1;
  drafted_ = drafted;
  if (step_.asked > 0) yield_.record(step_.found, step_.asked, kYieldMemory);
  if (step_.shape.prefill_rows > 0 || alike_ <= settling()) return;
  const double foretold = step_seconds(measured.draft_rows);
  if (drafted) {
    speculative_.observe((measured.draft_seconds + measured.step_seconds) /
                         (step_.draft_seconds + step_.catch_up + foretold));
  } else {
    plain_.observe(measured.step_seconds / foretold);
  }
}

}  // namespace paceline::policy
