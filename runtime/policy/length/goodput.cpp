#include "runtime/policy/length/goodput.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::policy {
namespace {

constexpr double kBegin = 1.05;    ///< speedup at which speculation begins; it ends at 1
constexpr double kSpared = 0.005;  ///< share of the time that trials may cost
constexpr double kAllowance = 8;   ///< plain steps that trials may cost in addition, at the start
/// Each trial in a row that changes nothing doubles the price of the next; at most so many count.
constexpr int kMostConfirmed = 3;
constexpr int kProbeSteps = 3;       ///< steps of a trial that only tells acceptance
constexpr double kLeastLoss = 0.03;  ///< least foreseen loss of a trial's step, in plain steps
constexpr int kLookInterval = 16;    ///< plain steps between two considerations of drafting
constexpr double kHorizon = 128;     ///< tokens within which catching up may always pay off
/// Further tokens of a response, as a share of those it has. Of lognormal lengths with a deviation
/// of 0.65 of their logarithm (plan/drain.hpp) the mean is 0.83 at the median, 0.46 at twice the
/// median, 0.35 at three times and 0.29 at four times.
constexpr double kFurther = 0.35;
constexpr double kRowsMemory = 1000;  ///< later tokens asked for after which one counts 1/e
/// Later tokens hoped for after which one counts 1/e: as many as tell a share to 2 %.
constexpr double kGainMemory = 1000;
constexpr double kNextToNothing = 0.003;  ///< share of a plain step
/// Share of a path's refused tokens that a second path may catch; a third may catch this share of
/// the rest. Seer's table 2 and bench_draft have 4 to 10 %. Some requests have more, and select()
/// drops tokens that do not pay.
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

// Offers grow drafter by drafter, since an offer always includes the drafters before its last one
// too. There is one offer for each drafter that costs anything, and one for only the free drafters.
Goodput::Goodput(CostTable costs, int max_length)
    : costs_(std::move(costs)), max_length_(max_length) {
  const std::size_t drafters = costs_.drafters.size();
  bool any_free = drafters == 0;
  for (std::size_t d = 0; d < drafters; ++d) any_free = any_free || is_free(d);
  if (any_free) offers_.emplace_back();
  for (std::size_t d = 0; d < drafters; ++d) {
    if (!is_free(d)) offers_.emplace_back().leading = d + 1;
  }
}

bool Goodput::is_free(std::size_t drafter) const {
  return drafter >= costs_.drafters.size() || costs_.drafters[drafter].first.empty();
}

bool Goodput::asks(std::size_t drafter) const {
  return drafter < offers_[taken_].leading || is_free(drafter);
}

double Goodput::step_seconds(double drafted) const {
  StepShape shape = step_.shape;
  shape.drafted = drafted;
  return costs_.step_seconds(shape);
}

double Goodput::speculative_ratio() const {
  return speculative_.known() ? speculative_.value() : plain_.value();
}

/// Speedup over plain decoding that a rate predicted from the table means, corrected by both
/// ratios.
double Goodput::speedup(double rate) const {
  return rate / speculative_ratio() * plain_.value() * step_seconds(0) / step_.shape.requests;
}

/// Number of steps after a switch to or from drafting that are not measured. They run on caches
/// filled by steps of the other kind: the more requests, the more KV has to be fetched again.
int Goodput::settling() const { return 1 + static_cast<int>(step_.shape.requests) / 8; }

bool Goodput::considers(const DraftQuery& query) {
  step_ = {};
  step_.shape = plain_step(query);
  if (query.requests == 0) return false;
  const double plain = step_seconds(0);
  spare_ += (spare_ == 0 ? kAllowance : kSpared) * plain;
  return on_ || trial_ > 0 || cheap(offers_.front().leading) || ++unlooked_ >= kLookInterval;
}

/// Whether any of the first `leading` drafters has a cost of catching up.
bool Goodput::lags(std::size_t leading) const {
  for (std::size_t d = 0; d < std::min(leading, costs_.drafters.size()); ++d) {
    if (!costs_.drafters[d].catch_up.empty()) return true;
  }
  return false;
}

/// Whether drafting for all requests costs next to nothing. Drafts are then asked for even where
/// choose() expects no gain, since select() sees the drafter's score of each token.
bool Goodput::cheap(std::size_t leading) const {
  const double n = step_.shape.requests;
  const double seconds = costs_.first_seconds(n, step_.shape.context, leading) +
                         (max_length_ - 1) * costs_.round_seconds(n, step_.shape.context, leading);
  return !lags(leading) && seconds <= kNextToNothing * step_seconds(0);
}

/// Sets each request's worth_ and next_ by the best hope among the first `leading` drafters and the
/// free ones.
void Goodput::count_hopes(const DraftQuery& query, std::size_t leading) {
  worth_.assign(query.requests, 1);
  next_.assign(query.acceptance.begin(), query.acceptance.end());
  if (query.hopes.empty()) return;
  const std::size_t drafters = query.hopes.size() / query.requests;
  for (int r = 0; r < query.requests; ++r) {
    double most = -1;
    for (std::size_t d = 0; d < drafters; ++d) {
      if (d >= leading && !is_free(d)) continue;
      const DraftHope& hope = query.hopes[d * query.requests + r];
      const double tokens = hope.tokens(max_length_);
      if (tokens <= most) continue;
      most = tokens;
      worth_[r] = hope.found;
      next_[r] = hope.next;
    }
  }
}

/// Share of the tokens hoped for that an offer's drafts bring. It is at most 1: drafts may bring
/// foretold tokens besides, which no plan counts. It is 1 where drafting costs next to nothing, for
/// what select() drops then costs nothing either.
double Goodput::gain_share(const Offer& offer) const {
  return cheap(offer.leading) ? 1 : std::min(1.0, offer.gains.estimate(1, max_length_));
}

/// Plans the best prefix of the candidates by worth_ and next_.
void Goodput::plan_prefix(const DraftQuery& query, Offer& offer) {
  DraftQuery counted = query;
  counted.acceptance = next_;
  offer.planner.list(counted, worth_, max_length_);
  offer.prices.of_steps(costs_, query, offer.planner.candidates().size(),
                        offer.rows.estimate(1, max_length_));
  offer.plan = offer.planner.best(query, offer.prices);
}

/// Leaves out requests for which the drafter's catching up does not pay before they are expected to
/// end. Where no request is left, keeps the one with the smallest lag and returns false.
bool Goodput::leave_out_laggards(const DraftQuery& query, const Offer& offer, double speedup) {
  const double saved = std::max(0.0, 1 - 1 / speedup) * step_seconds(0) / query.requests;
  const double behind = std::accumulate(query.lag.begin(), query.lag.end(), 0.0);
  const double second =
      costs_.catch_up_seconds(behind, query.context, offer.leading) / std::max(1.0, behind);
  bool any = false;
  for (int r = 0; r < query.requests; ++r) {
    const int lag = query.lag[r];
    const double further = query.response.empty() ? 0 : kFurther * query.response[r];
    if (lag <= max_length_ || second * lag < saved * std::max(kHorizon, further)) {
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

void Goodput::plan(const DraftQuery& query, Offer& offer) {
  offer.prices.of_drafting(costs_, query, offer.leading);
  count_hopes(query, offer.leading);
  const double share = gain_share(offer);
  for (double& worth : worth_) worth *= share;
  plan_prefix(query, offer);
  const bool behind =
      lags(offer.leading) &&
      std::any_of(query.lag.begin(), query.lag.end(), [&](int lag) { return lag > max_length_; });
  if (!behind) return;
  const bool pays = leave_out_laggards(query, offer, speedup(offer.plan.rate));
  plan_prefix(query, offer);
  if (!pays) offer.plan.rate = 0;
}

/// Begins a trial when its predicted loss is at most spare_.
void Goodput::consider_trial(const DraftQuery& query) {
  const Offer& offer = offers_[taken_];
  const DraftPlan& plan = offer.plan;
  if (plan.tokens == 0) return;
  const double plain = step_seconds(0);
  const double as_plain = plain * (query.requests + plan.gain) / query.requests;
  const double speculative = plan.seconds * speculative_ratio() / plain_.value();
  const double loss = on_ ? plain * (1 - speculative / as_plain) : speculative - as_plain;
  // A trial whose plan has a rate must outlast settling() and change the median. A trial without a
  // rate only measures acceptance.
  const int steps = plan.rate > 0 ? settling() + PaceRatio::kSteps / 2 + 1 : kProbeSteps;
  double total = steps * std::max(loss, kLeastLoss * plain);
  if (!on_) {
    double behind = 0;
    offer.planner.for_each(plan, [&](const DraftCandidate& candidate) {
      if (candidate.depth == 1 && !query.lag.empty()) behind += query.lag[candidate.request];
    });
    total += costs_.catch_up_seconds(behind, query.context, offer.leading);
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
  for (Offer& offer : offers_) plan(query, offer);
  // max_element takes the first of equal offers, which costs least.
  const auto most =
      std::max_element(offers_.begin(), offers_.end(),
                       [](const Offer& a, const Offer& b) { return a.plan.rate < b.plan.rate; });
  taken_ = static_cast<std::size_t>(most - offers_.begin());
  if (trial_ == 0) {
    const double rate = most->plan.rate;
    const bool pays = rate > 0 && speedup(rate) > (on_ ? 1 : kBegin);
    if (pays != on_) confirmed_ = 0;
    on_ = pays;
    if (query.prefill_rows == 0) consider_trial(query);
  }
  const bool trial = trial_ > 0;
  if (trial) --trial_;
  const bool speculates = on_ != trial;
  if (!speculates) {
    if (on_ || !cheap(offers_.front().leading)) return;
    taken_ = 0;
  }
  const Offer& offer = offers_[taken_];
  step_.row = row_price(query);
  if (!on_ && trial) step_.at_least = offer.plan.tokens;
  if (speculates) step_.hoped = offer.plan.gain / gain_share(offer);
  if (cheap(offer.leading)) {
    for (int r = 0; r < query.requests; ++r)
      lengths[r] = std::min(max_length_, query.longest_draft[r]);
  } else {
    offer.planner.for_each(offer.plan,
                           [&](const DraftCandidate& c) { lengths[c.request] = c.depth; });
  }
  ask(query, lengths);
}

/// Committed tokens that a further row must be worth for goodput not to fall: its seconds times the
/// plan's rate. The price is a mean over several rows, for the table may rise in steps.
double Goodput::row_price(const DraftQuery& query) const {
  const Offer& offer = offers_[taken_];
  const double rows = offer.rows.estimate(1, max_length_) * offer.plan.tokens;
  const double more = query.requests;
  const double seconds = (step_seconds(rows + more) - step_seconds(rows)) / more;
  return std::max(offer.plan.rate, query.requests / step_seconds(0)) * std::max(0.0, seconds);
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
  const Offer& offer = offers_[taken_];
  step_.draft_seconds = offer.prices.first[in_round[0]];
  for (std::size_t i = 1; i < in_round.size(); ++i)
    step_.draft_seconds += offer.prices.round[in_round[i]];
  step_.catch_up = costs_.catch_up_seconds(behind, query.context, offer.leading);
}

void Goodput::select(const DraftQuery& query, const DraftedTokens& drafted,
                     std::span<std::uint8_t> keep) {
  const auto found = static_cast<int>(drafted.values.size());
  order_by_value(drafted, order_);
  const double correction = speculative_ratio() / plain_.value();
  double gain = 0;
  double best_rate = (on_ ? 1 : kBegin) * query.requests / (step_.draft_seconds + step_seconds(0));
  int best = 0;
  for (int i = 0; i < found; ++i) {
    gain += drafted.values[order_[i]];
    const double seconds = (step_.draft_seconds + step_seconds(i + 1)) * correction;
    const double rate = (query.requests + gain) / seconds;
    if (rate > best_rate) {
      best_rate = rate;
      best = i + 1;
    }
  }
  best = std::max(best, std::min(step_.at_least, found));
  std::fill(keep.begin(), keep.end(), 0);
  for (int i = 0; i < best; ++i) keep[order_[i]] = 1;
}

void Goodput::observe(const StepOutcome& measured) {
  if (step_.shape.requests == 0) return;
  const bool drafted = measured.draft_rows > 0;
  alike_ = drafted == drafted_ ? alike_ + 1 : 1;
  drafted_ = drafted;
  if (step_.asked > 0) offers_[taken_].rows.record(measured.draft_rows, step_.asked, kRowsMemory);
  if (step_.hoped > 0) offers_[taken_].gains.record(measured.accepted, step_.hoped, kGainMemory);
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
