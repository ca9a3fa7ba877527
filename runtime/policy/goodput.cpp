#include "runtime/policy/goodput.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace paceline::policy {
namespace {

constexpr double kFineGap = 1.25;  ///< ratio of known row counts with much to learn between
// Hysteresis: by how much speculation must beat plain decoding to begin, and to go on.
constexpr double kBegin = 1.08;
constexpr double kGoOn = 1.04;
/// What a scout could find must be better than what is known by as much.
constexpr double kWorthScouting = 1.03;
constexpr double kGrowth = 2;  ///< of rows and of requests that draft, from one step to the next
constexpr double kMostSurprise = 1.5;  ///< of seconds foreseen, believed at once
/// What is foreseen of a plain step may be wrong by so many standard errors.
constexpr double kSure = 1.5;
constexpr double kLeastDoubt = 0.06;  ///< as a share: no more is asked of trials
/// Nor is more doubt borne, however much is to be gained: what is wrongly thought of plain steps
/// makes the gain look large as well.
constexpr double kMostDoubt = 0.3;
constexpr double kPlainNoise = 0.08;         ///< of one plain step, relative
constexpr double kPrefillNoise = 0.2;        ///< of one that prefills too: prompts differ
constexpr double kCalibrationMemory = 0.95;  ///< of a step that speculates
/// Of one that does not. What failed is tried anew after some hundred steps, not after some ten.
constexpr double kCalibrationFading = 0.998;
/// Steps that speculated just as foreseen, which the calibration begins with.
constexpr double kCalibrationWeight = 5;
/// Drafting whose full cost is this share of a plain step is asked for everything, for what
/// select() sees is better than what choose() can guess.
constexpr double kNextToNothing = 0.003;
constexpr int kProbeLength = 3;
constexpr int kProbeSteps =
    3;  ///< the first pays for catching up, the others show what a round costs
constexpr double kFirstProbeInterval = 16;
constexpr double kLastProbeInterval = 512;
/// Intervals are odd: every other step may prefill, and nothing begins in one that does.
constexpr double kLastLookInterval = 31;
/// How much longer it is to the next scout after one to rows never tried, or to tried ones.
constexpr double kNewScout = 1.05;
constexpr double kOldScout = 1.5;
constexpr double kLastScoutInterval = 128;
constexpr double kBatchChange = 1.25;  ///< ratio of batch sizes at which old refusals mean little
/// Plain steps after drafts that do not tell what plain decoding costs: they find in the caches
/// what speculation left there, and take up to half longer. The more requests, the more of their KV
/// has to come back.
double unsettled_steps(int requests) { return std::clamp(requests / 5.0, 2.0, 12.0); }
constexpr double kYieldWeight = 8;     ///< tokens for which the yield is 1
constexpr double kYieldMemory = 0.98;  ///< of a step that drafts

}  // namespace

double Goodput::Drafter::yield() const { return (found + kYieldWeight) / (asked + kYieldWeight); }

Goodput::Goodput(const GoodputOptions& options)
    : options_(options),
      drafters_(static_cast<std::size_t>(options.drafters)),
      account_(options.exploration) {}

/// Of the step under way with so many drafted tokens. Plain ones were measured at this batch size,
/// so more is known of them than the curve over all row counts says. With prefill: plain decoding
/// and what the drafts add, for the prefill is paid for in any case. Rows of prefill make further
/// ones no cheaper, and a difference of two large measured costs is uncertain: it counts where it
/// says more.
double Goodput::step_seconds(int draft_rows, bool least) const {
  const auto of = [&](const StepCost& cost, double rows) {
    return least ? cost.least_seconds(rows) : cost.seconds(rows);
  };
  const double decode =
      draft_rows == 0 ? plain_seconds() : of(decode_, step_.requests + draft_rows);
  if (step_.prefill_rows == 0) return decode;
  const double rows = step_.requests + step_.prefill_rows;
  return std::max(decode, plain_seconds() + of(mixed_, rows + draft_rows) - mixed_.seconds(rows));
}

StepPlace Goodput::place() const {
  return {static_cast<double>(std::max(1, step_.requests)), step_.context, steps_};
}

/// Whether a plain step now tells what plain decoding costs.
bool Goodput::settled() const {
  return last_drafts_ == 0 || steps_ - last_drafts_ > unsettled_steps(step_.requests);
}

/// Against plain decoding of as many tokens.
double Goodput::loss(double seconds, double committed) const {
  return seconds - plain_seconds() * committed / step_.requests;
}

std::size_t Goodput::octave() const {
  return std::bit_width(static_cast<unsigned>(step_.requests));
}

/// Seconds of speculation of late, by what was foreseen.
double Goodput::calibration() const {
  const double weight = kCalibrationWeight * plain_seconds();
  const Ratio& speculating = speculating_[octave()];
  return (speculating.measured + weight) / (speculating.foreseen + weight);
}

/// Whether a gain foreseen may be none, for all that is known of plain steps here and now.
bool Goodput::in_doubt(double speedup) const {
  return kSure * pace_.doubt(place()) > std::clamp(1 - 1 / speedup, kLeastDoubt, kMostDoubt);
}

/// Fills order_ with the requests, those whose drafter is least behind first.
void Goodput::by_lag(const DraftQuery& query) {
  order_.resize(query.requests);
  std::iota(order_.begin(), order_.end(), 0);
  if (query.lag.empty()) return;
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int a, int b) { return query.lag[a] < query.lag[b]; });
}

/// Tokens that may be drafted, by falling expected gain. Requests whose drafter is far behind are
/// left out where catching up does not pay off, or costs more than `spare` seconds in all.
/// `saving`: share of plain decoding's time that speculation saves at most.
void Goodput::list_candidates(const DraftQuery& query, double spare, double saving) {
  const Drafter& drafter = drafters_[query.drafter];
  worth_.assign(query.requests, drafter.yield());
  if (!query.lag.empty()) {
    by_lag(query);
    const double second = plain_seconds() / query.requests;  // of a plain token
    double total = 0;
    double behind = 0;  // tokens that those before have to catch up
    for (const int r : order_) {
      const double cost = drafter.cost.catch_up_seconds(behind + query.lag[r]) - total;
      const double gain = query.acceptance[r] / std::max(1 - query.acceptance[r], 0.1);
      const double horizon = std::max(options_.catch_up_horizon, query.lag[r]);
      const double saved = second * horizon * std::min(saving, gain / (1 + gain));
      const bool unknown = !drafter.cost.catch_up_known() && query.lag[r] > options_.max_length;
      if (unknown || total + cost > spare || cost > saved) {
        worth_[r] = 0;
        continue;
      }
      behind += query.lag[r];
      total += cost;
    }
  }
  planner_.list(query, worth_, options_.max_length);
}

void Goodput::tabulate(bool least, DraftPrices& prices) const {
  const Drafter& drafter = drafters_[step_.drafter];
  const double rows = drafter.yield();
  prices.step.resize(planner_.candidates().size() + 1);
  for (std::size_t i = 0; i < prices.step.size(); ++i) {
    prices.step[i] = step_seconds(static_cast<int>(rows * static_cast<double>(i) + 0.5), least);
  }
  prices.round.resize(static_cast<std::size_t>(step_.requests) + 1);
  for (int n = 0; n <= step_.requests; ++n) {
    prices.round[n] = n == 0  ? 0
                      : least ? drafter.cost.least_round_seconds(n)
                              : drafter.cost.round_seconds(n);
  }
}

bool Goodput::considers(const DraftQuery& query) {
  step_ = {};
  step_.requests = query.requests;
  step_.prefill_rows = query.prefill_rows;
  step_.context = query.context;
  step_.drafter = query.drafter;
  if (query.requests == 0 || !decode_.known(query.requests)) return false;
  if (query.prefill_rows > 0 && !mixed_.known(query.requests + query.prefill_rows)) return false;

  Drafter& drafter = drafters_[query.drafter];
  const double ratio = static_cast<double>(std::max(query.requests, drafter.scaled_to)) /
                       std::max(1, std::min(query.requests, drafter.scaled_to));
  if (ratio > kBatchChange) {
    drafter.scaled_to = query.requests;
    drafter.scout_interval = 1;
    drafter.next_scout = steps_;
    drafter.probe_interval = kFirstProbeInterval;
    drafter.next_probe = std::min(drafter.next_probe, steps_ + kFirstProbeInterval);
  }
  const double allowance = options_.allowance * plain_seconds();
  account_.allow(std::max(allowance, options_.least_allowance));
  if (query.requests * 2 <= regime_) {
    // What large batches lost must not keep speculation from the small ones that it is for.
    account_.relieve(allowance);
  }
  if (query.requests * 2 <= regime_ || query.requests > regime_) regime_ = query.requests;
  if (ratio > kBatchChange) drafter.look_interval = 1;
  // Deciding takes time too: what was refused again and again is not weighed at every step.
  return drafter.on || drafter.probe_left > 0 || steps_ >= drafter.next_look;
}

void Goodput::choose(const DraftQuery& query, std::span<int> lengths) {
  std::fill(lengths.begin(), lengths.end(), 0);
  Drafter& drafter = drafters_[query.drafter];
  const bool drafts = decide(query, lengths);
  drafter.look_interval = drafts ? 1 : std::min(kLastLookInterval, 2 * drafter.look_interval + 1);
  drafter.next_look = steps_ + drafter.look_interval;
}

/// False: the step is plain.
bool Goodput::decide(const DraftQuery& query, std::span<int> lengths) {
  Drafter& drafter = drafters_[query.drafter];
  const double spare = account_.balance();
  if (spare <= 0) {
    drafter.on = false;
    return false;
  }
  const bool may_explore = query.prefill_rows == 0;
  if (may_explore && drafter.cost.largest() == 0) return probe(query, lengths);
  // Catching up is worth what speculation saves, which is known once it is planned.
  const double plain_rate = query.requests / plain_seconds();
  const bool lags = std::any_of(query.lag.begin(), query.lag.end(),
                                [&](int lag) { return lag > options_.max_length; });
  DraftPlan plan;
  double speedup = 0;
  for (int round = lags ? 0 : 1; round < 2; ++round) {
    const double saving = round == 1 && lags ? std::max(0.0, 1 - 1 / speedup) : 1;
    list_candidates(query, spare / 2, saving);  // the other half is for bad luck
    tabulate(false, likely_);
    plan = planner_.best(query, likely_);
    speedup = plan.rate / calibration() / plain_rate;
  }
  drafter.on = speedup > (drafter.on ? kGoOn : kBegin);
  if (in_doubt(speedup)) return false;
  if (may_explore && scout(query, plan, lengths)) return true;
  if (ask_all(query, lengths)) return true;
  if (!drafter.on) return may_explore && probe(query, lengths);
  take(query, plan, Mode::speculate, lengths);
  return true;
}

/// Drafted tokens to try so as to learn whether `wish`, which is optimistic, is true: the middle of
/// the gap between known row counts in which it lies; 0: there is nothing to learn.
int Goodput::scout_tokens(const DraftPlan& wish) const {
  const double rows = step_.requests + wish.tokens;
  const StepCost::Gap gap = decode_.gap(rows);
  double aim = 0;
  if (gap.above == 0) {
    aim = std::min(rows, kGrowth * gap.below);
  } else if (gap.above > kFineGap * gap.below && gap.above >= gap.below + 2) {
    aim = std::sqrt(gap.below * gap.above);
  } else {
    aim = rows;  // perhaps measured, but not often enough
  }
  return std::max(0, static_cast<int>(aim + 0.5) - step_.requests);
}

bool Goodput::scout(const DraftQuery& query, const DraftPlan& known, std::span<int> lengths) {
  Drafter& drafter = drafters_[query.drafter];
  if (steps_ < drafter.next_scout) return false;
  tabulate(true, least_);
  const DraftPlan wish = planner_.best(query, least_);
  const double sure = std::max(known.rate, query.requests / plain_seconds());
  if (wish.rate < kWorthScouting * sure) return false;
  const int tokens = std::min(scout_tokens(wish), wish.tokens);
  if (tokens == 0) return false;
  // A single late call of the drafter must not make every further one seem too dear to try.
  least_.step = likely_.step;
  const DraftPlan plan = planner_.prefix(query, least_, tokens, wish.depth);
  double behind = 0;
  planner_.for_each(plan, [&](const DraftCandidate& candidate) {
    if (candidate.depth == 1 && !query.lag.empty()) behind += query.lag[candidate.request];
  });
  const double seconds = plan.seconds + drafter.cost.catch_up_seconds(behind);
  if (loss(seconds, query.requests + plan.gain) > account_.to_explore()) return false;
  take(query, plan, Mode::scout, lengths);
  drafter.next_scout = steps_ + drafter.scout_interval;
  const StepCost::Gap gap = decode_.gap(query.requests + tokens);
  const bool is_new = gap.above == 0 || gap.above > kFineGap * gap.below;
  drafter.scout_interval =
      std::min(kLastScoutInterval, drafter.scout_interval * (is_new ? kNewScout : kOldScout));
  return true;
}

/// Whether drafts of no length would pay if everything in them were accepted.
bool Goodput::hopeless() const {
  const Drafter& drafter = drafters_[step_.drafter];
  const double n = step_.requests;
  if (drafter.cost.largest() * kGrowth < n) return false;
  for (int length = 1; length <= options_.max_length; ++length) {
    if (decode_.largest() < n * (1 + length)) return false;
    const double seconds =
        length * drafter.cost.round_seconds(n) + step_seconds(length * step_.requests, false);
    if ((1 + length) * plain_seconds() > kBegin * calibration() * seconds) return false;
  }
  return true;
}

bool Goodput::probe(const DraftQuery& query, std::span<int> lengths) {
  Drafter& drafter = drafters_[query.drafter];
  const bool lags = !query.lag.empty();
  if (drafter.probe_left == 0) {
    const double latest = drafter.last_probe + kLastProbeInterval;  // costs may have changed
    if (steps_ < drafter.next_probe) return false;
    if (steps_ < latest && hopeless()) {
      drafter.next_probe = latest;
      return false;
    }
  }
  by_lag(query);
  // What catching up costs is found out with one request.
  const bool unknown =
      lags && !drafter.cost.catch_up_known() && query.lag[order_[0]] > options_.max_length;
  const auto affordable = [&](int most_requests, int length) {
    int chosen = 0;
    int tokens = 0;
    int behind = 0;
    std::fill(lengths.begin(), lengths.end(), 0);
    for (const int r : order_) {
      const int room = std::min({length, query.room[r], query.max_draft_rows - tokens});
      if (room <= 0) continue;
      lengths[r] = room;
      tokens += room;
      if (lags) behind += query.lag[r];
      if (++chosen == most_requests) break;
    }
    const double seconds = length * drafter.cost.least_round_seconds(chosen) +
                           drafter.cost.catch_up_seconds(behind) + step_seconds(tokens, false);
    return tokens > 0 && loss(seconds, query.requests) <= account_.to_explore();
  };
  if (!affordable(unknown ? 1 : options_.probe_requests,
                  std::min(kProbeLength, options_.max_length)) &&
      !affordable(1, 1)) {
    std::fill(lengths.begin(), lengths.end(), 0);
    drafter.probe_left = 0;
    return false;
  }
  if (drafter.probe_left == 0) {
    drafter.last_probe = steps_;
    drafter.probe_left = lags ? kProbeSteps : 1;
    drafter.probe_interval =
        std::clamp(2 * drafter.probe_interval, kFirstProbeInterval, kLastProbeInterval);
    drafter.next_probe = steps_ + drafter.probe_interval;
  }
  --drafter.probe_left;
  ask(query, Mode::probe, lengths);
  return true;
}

bool Goodput::ask_all(const DraftQuery& query, std::span<int> lengths) {
  const Drafter& drafter = drafters_[query.drafter];
  if (drafter.cost.largest() * kGrowth < query.requests || !query.lag.empty()) return false;
  const double seconds = options_.max_length * drafter.cost.round_seconds(query.requests);
  if (seconds > kNextToNothing * plain_seconds()) return false;
  // Now and then select() has no say, or acceptance would never be seen to rise.
  if (!drafter.on && steps_ >= drafter.next_probe) return false;
  for (int r = 0; r < query.requests; ++r) {
    lengths[r] = std::min(options_.max_length, query.room[r]);
  }
  ask(query, Mode::speculate, lengths);
  return true;
}

void Goodput::take(const DraftQuery& query, const DraftPlan& plan, Mode mode,
                   std::span<int> lengths) {
  const Drafter& drafter = drafters_[query.drafter];
  const double rows_tried = std::max<double>(query.requests, decode_.largest());
  const int most_tokens = static_cast<int>(kGrowth * rows_tried) - query.requests;
  const int most_requests =
      std::max(options_.probe_requests, static_cast<int>(kGrowth * drafter.cost.largest()));
  int tokens = 0;
  int requests = 0;
  planner_.for_each(plan, [&](const DraftCandidate& candidate) {
    if (tokens == most_tokens) return;
    if (lengths[candidate.request] == 0) {
      if (candidate.depth > 1 || requests == most_requests) return;
      ++requests;
    }
    lengths[candidate.request] = candidate.depth;
    ++tokens;
  });
  if (tokens > 0) ask(query, mode, lengths);
}

void Goodput::ask(const DraftQuery& query, Mode mode, std::span<const int> lengths) {
  step_.mode = mode;
  for (int r = 0; r < query.requests; ++r) {
    if (lengths[r] == 0) continue;
    step_.rounds = std::max(step_.rounds, lengths[r]);
    step_.asked += lengths[r];
    if (!query.lag.empty()) step_.catch_up += query.lag[r];
  }
}

void Goodput::select(const DraftQuery& query, const DraftedTokens& drafted,
                     std::span<std::uint8_t> keep) {
  step_.found = static_cast<int>(drafted.values.size());
  order_by_value(drafted, order_);
  int limit = static_cast<int>(std::min<std::size_t>(order_.size(), query.max_draft_rows));
  if (step_.mode == Mode::speculate) {
    const StepCost& cost = query.prefill_rows > 0 ? mixed_ : decode_;
    const double rows = query.requests + query.prefill_rows;
    limit = std::min(limit, static_cast<int>(kGrowth * std::max(rows, cost.largest()) - rows));
    const Drafter& drafter = drafters_[query.drafter];
    const double draft_seconds =
        step_.rounds *
        drafter.cost.round_seconds(static_cast<double>(step_.asked) / std::max(1, step_.rounds));
    double gain = 0;
    double best_rate = kGoOn * query.requests / (draft_seconds + step_seconds(0, false));
    int best = 0;
    for (int i = 0; i < limit; ++i) {
      gain += drafted.values[order_[i]];
      const double rate = (query.requests + gain) / (draft_seconds + step_seconds(i + 1, false));
      if (rate > best_rate) {
        best_rate = rate;
        best = i + 1;
      }
    }
    limit = best;
  }
  std::fill(keep.begin(), keep.end(), 0);
  for (int i = 0; i < limit; ++i) keep[order_[i]] = 1;
}

void Goodput::observe(const StepOutcome& measured) {
  steps_ += 1;
  Drafter& drafter = drafters_[step_.drafter];
  const bool catching_up = step_.catch_up > 0;
  const bool prefills = step_.prefill_rows > 0;
  StepCost& cost = prefills ? mixed_ : decode_;
  const double rows = step_.requests + step_.prefill_rows + measured.draft_rows;
  const bool known = cost.known(rows);
  if (step_.asked == 0 && step_.requests > 0 && settled() && known)
    pace_.observe(place(), measured.step_seconds / cost.seconds(rows),
                  prefills ? kPrefillNoise : kPlainNoise);
  const double common = pace_.common(place());
  StepOutcome outcome = measured;
  outcome.step_seconds /= common;
  outcome.draft_seconds /= common;
  const double in_round = static_cast<double>(step_.asked) / std::max(1, step_.rounds);
  const double foreseen = cost.seconds(rows);
  const double draft_foreseen = drafter.cost.largest() > 0
                                    ? step_.rounds * drafter.cost.round_seconds(in_round)
                                    : plain_seconds();
  const double step_foreseen = step_seconds(outcome.draft_rows, false);
  const double clipped = foreseen > 0 ? std::min(outcome.step_seconds, kMostSurprise * foreseen)
                                      : outcome.step_seconds;
  const bool catch_up_known = drafter.cost.catch_up_known();
  const double catch_up = drafter.cost.catch_up_seconds(step_.catch_up);
  if (outcome.draft_rows > 0) last_drafts_ = steps_;
  if (outcome.draft_rows > 0 || settled() || !known) cost.observe(rows, outcome.step_seconds);
  account_.elapse(clipped);
  Ratio& speculating = speculating_[octave()];
  if (step_.asked == 0) {
    speculating.add(0, 0, kCalibrationFading);
    return;
  }
  drafter.cost.observe({step_.rounds, step_.asked, step_.catch_up, outcome.draft_seconds});
  drafter.asked = kYieldMemory * drafter.asked + step_.asked;
  drafter.found = kYieldMemory * drafter.found + step_.found;

  // The account believes no single measurement that it is far more than foreseen: outliers strike
  // plain steps too. Nor what foresaw the first steps of as many rows, if they turn out cheaper.
  const double seconds = known ? clipped : std::min(clipped, cost.seconds(rows));
  const double draft_seconds =
      catching_up && !catch_up_known
          ? outcome.draft_seconds
          : std::min(outcome.draft_seconds, kMostSurprise * (draft_foreseen + catch_up));
  account_.elapse(draft_seconds);
  const double committed = std::max(outcome.committed, step_.requests);
  if (prefills) {
    account_.lose(loss(draft_seconds + step_foreseen, committed));
  } else {
    account_.lose(loss(draft_seconds + seconds, committed));
    if (step_.mode == Mode::speculate && known && step_.catch_up <= step_.asked) {
      speculating.add(draft_seconds + clipped, draft_foreseen + step_foreseen, kCalibrationMemory);
    }
  }
  // What was caught up is not left to fall behind again at once.
  if (step_.mode == Mode::scout && catching_up) drafter.next_scout = steps_;
}

}  // namespace paceline::policy
