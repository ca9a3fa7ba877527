#include "runtime/policy/plan/reconfiguration.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::policy {
namespace {

/// Gain that makes a longer window, or any, worth its waste: less is within the noise of an
/// estimate.
constexpr double kLeastGain = 1.005;
/// Margin of "below the mean" beyond the rounding of a sum: no one of equal requests is below it.
constexpr double kBelow = 1 - 1e-9;

/// Lines 3 to 5: the best window of the best way for a request whose acceptance is p [ways].
RequestPlan best_plan(const ReconfigurationFacts& facts, std::span<const double> p) {
  const SpeculationCosts& any = facts.ways.front().costs;
  RequestPlan best;
  best.tokens_per_second = plain_speed(any.table, any.context, facts.batch).tokens_per_second;
  for (std::size_t way = 0; way < facts.ways.size(); ++way) {
    const auto& [mode, costs, longest] = facts.ways[way];
    for (int w = 1; w <= longest; ++w) {
      const Speed speed = mode == SpeculationMode::decoupled
                              ? decoupled_speed(costs, p[way], w, facts.batch, facts.drafted_for)
                              : coupled_speed(costs, p[way], w, facts.batch);
      if (speed.tokens_per_second <= best.tokens_per_second * kLeastGain) continue;
      best.mode = mode;
      best.window = w;
      best.tokens_per_second = speed.tokens_per_second;
    }
  }
  return best;
}

}  // namespace

std::vector<RequestPlan> reconfigure(const ReconfigurationFacts& facts,
                                     std::span<const double> acceptance,
                                     std::span<const std::size_t> due) {
  std::vector<RequestPlan> plans;
  const std::size_t ways = facts.ways.size();
  if (acceptance.empty() || ways == 0) return plans;
  std::vector<double> best;
  for (std::size_t at = 0; at < acceptance.size(); at += ways) {
    const auto own = acceptance.subspan(at, ways);
    best.push_back(*std::max_element(own.begin(), own.end()));
  }
  const double mean =
      std::accumulate(best.begin(), best.end(), 0.0) / static_cast<double>(best.size());
  for (const std::size_t r : due) {
    if (best[r] >= mean * kBelow) continue;
    RequestPlan plan = best_plan(facts, acceptance.subspan(r * ways, ways));
    plan.request = r;
    plans.push_back(plan);
  }
  return plans;
}

}  // namespace paceline::policy
