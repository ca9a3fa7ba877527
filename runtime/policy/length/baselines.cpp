#include "runtime/policy/length/baselines.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace paceline::policy {
namespace {

/// The least-squares line, as a curve from the first point to the last.
CostCurve straight(const CostCurve& curve) {
  const std::vector<CostCurve::Point>& points = curve.points();
  if (points.size() < 3) return curve;
  const auto n = static_cast<double>(points.size());
  double rows = 0;
  double seconds = 0;
  for (const CostCurve::Point& p : points) {
    rows += p.rows / n;
    seconds += p.seconds / n;
  }
  double covariance = 0;
  double variance = 0;
  for (const CostCurve::Point& p : points) {
    covariance += (p.rows - rows) * (p.seconds - seconds);
    variance += (p.rows - rows) * (p.rows - rows);
  }
  // Where the line falls to 0 or below, the point keeps its measured cost.
  const auto at = [&](const CostCurve::Point& p) -> CostCurve::Point {
    const double line = seconds + covariance / variance * (p.rows - rows);
    return {p.rows, line > 0 ? line : p.seconds};
  };
  return CostCurve({at(points.front()), at(points.back())}, curve.attention(), curve.context());
}

}  // namespace

Nightjar::Nightjar(CostTable costs, int max_length, std::uint64_t seed)
    : costs_(std::move(costs)), max_length_(max_length), draws_(seed) {}

int Nightjar::best(const Batch& batch, double switching) const {
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int length = 0; length <= max_length_; ++length) {
    const MeanGoodput& arm = batch.arms[length];
    if (arm.visits() == 0) continue;
    const double cost = 1 / arm.value() + (length > 0 ? switching / length : 0);
    if (cost < least) {
      least = cost;
      best = length;
    }
  }
  return best;
}

/// Returns false if plain decoding is best even without the cost of switching, since it is then
/// best with this cost too. Lags need not be computed for this.
bool Nightjar::considers(const DraftQuery& query) {
  step_ = {};
  if (query.requests == 0) return false;
  while (batches_.size() < static_cast<std::size_t>(query.requests))
    batches_.push_back({{}, false, std::vector<MeanGoodput>(max_length_ + 1)});
  Batch& batch = batches_[query.requests - 1];
  step_.requests = query.requests;
  step_.is_round = query.prefill_rows == 0;
  if (step_.is_round) {
    if (batch.schedule.begins_bin())
      batch.explores = draws_.uniform() < batch.schedule.exploration();
    step_.explores = batch.explores;
  }
  step_.length = step_.explores ? draws_.below(max_length_ + 1) : best(batch, 0);
  return step_.length > 0;
}

void Nightjar::choose(const DraftQuery& query, std::span<int> lengths) {
  if (!step_.explores && last_ == 0 && !query.lag.empty()) {
    const int furthest = *std::max_element(query.lag.begin(), query.lag.end());
    const double tokens = static_cast<double>(furthest) * query.requests;
    step_.length =
        best(batches_[query.requests - 1], costs_.catch_up_seconds(tokens, query.context));
  }
  step_.length = draft_alike(query, step_.length, lengths);
}

void Nightjar::observe(const StepOutcome& measured) {
  if (step_.requests == 0) return;
  last_ = step_.length;
  if (!step_.is_round) return;
  Batch& batch = batches_[step_.requests - 1];
  batch.arms[step_.length].record(measured);
  batch.schedule.advance();
}

int BanditSpec::best() const {
  int steps = 0;
  for (const MeanGoodput& arm : arms_) steps += arm.visits();
  int best = 0;
  double most = 0;
  for (std::size_t length = 0; length < arms_.size(); ++length) {
    const MeanGoodput& arm = arms_[length];
    if (arm.visits() == 0) return static_cast<int>(length);
    const double bound = arm.value() / highest_ + std::sqrt(2 * std::log(steps) / arm.visits());
    if (bound > most) {
      most = bound;
      best = static_cast<int>(length);
    }
  }
  return best;
}

bool BanditSpec::considers(const DraftQuery& query) {
  is_round_ = query.requests > 0 && query.prefill_rows == 0;
  length_ = query.requests > 0 ? best() : 0;
  return length_ > 0;
}

void BanditSpec::choose(const DraftQuery& query, std::span<int> lengths) {
  length_ = draft_alike(query, length_, lengths);
}

void BanditSpec::observe(const StepOutcome& measured) {
  if (!is_round_) return;
  arms_[length_].record(measured);
  highest_ = std::max(highest_, arms_[length_].value());
}

void Tetris::select(const DraftQuery& query, const DraftedTokens& drafted,
                    std::span<std::uint8_t> keep) {
  order_by_value(drafted, order_);
  const auto budget = static_cast<std::size_t>(std::ceil(kBudget * query.requests * max_length_));
  std::fill(keep.begin(), keep.end(), 0);
  for (std::size_t i = 0; i < std::min(budget, order_.size()); ++i) keep[order_[i]] = 1;
}

Dsd::Dsd(const CostTable& costs, int max_length) : costs_(costs), max_length_(max_length) {
  costs_.decode = straight(costs_.decode);
  costs_.prefill = straight(costs_.prefill);
  for (DrafterCosts& drafter : costs_.drafters) {
    drafter.first = straight(drafter.first);
    drafter.round = straight(drafter.round);
  }
}

void Dsd::choose(const DraftQuery& query, std::span<int> lengths) {
  const double mean =
      std::accumulate(query.acceptance.begin(), query.acceptance.end(), 0.0) / query.requests;
  acceptance_.assign(query.requests, mean);
  worth_.assign(query.requests, 1);
  DraftQuery batch = query;
  batch.acceptance = acceptance_;
  planner_.list(batch, worth_, max_length_);
  prices_.of_drafting(costs_, query);
  prices_.of_steps(costs_, query, planner_.candidates().size(), 1);
  const DraftPlan best = planner_.best(query, prices_, DraftPlanner::Prefixes::whole_rounds);
  const double plain = query.requests / prices_.step[0];
  draft_alike(query, best.rate > plain ? best.depth : 0, lengths);
}

}  // namespace paceline::policy
