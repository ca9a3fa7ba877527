#include "runtime/policy/length/dsd.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::policy {
namespace {

/// The line of least squares, as a curve from the first point to the last.
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
  // Where the line falls below 0 the fewest rows cost what was measured of them.
  const auto at = [&](const CostCurve::Point& p) -> CostCurve::Point {
    const double line = seconds + covariance / variance * (p.rows - rows);
    return {p.rows, line > 0 ? line : p.seconds};
  };
  return CostCurve({at(points.front()), at(points.back())}, curve.attention());
}

}  // namespace

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
