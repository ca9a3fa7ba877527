#include "runtime/policy/reconfiguration.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::policy {
namespace {

/// For which a longer window, or any, is worth its waste: less is within the noise of an estimate.
constexpr double kLeastGain = 1.005;

/// Lines 3 to 5: the best window of the better mode for a request that accepts p.
RequestPlan best_plan(const ReconfigurationFacts& facts, double p) {
  RequestPlan best;
  best.mode = facts.coupled ? SpeculationMode::coupled : SpeculationMode::decoupled;
  const SpeculationCosts& any = facts.coupled ? *facts.coupled : *facts.decoupled;
  best.tokens_per_second = plain_speed(any.table, any.context, facts.batch).tokens_per_second;
  const auto consider = [&](SpeculationMode mode, int w, const Speed& speed) {
    if (speed.tokens_per_second <= best.tokens_per_second * kLeastGain) return;
    best.mode = mode;
    best.window = w;
    best.tokens_per_second = speed.tokens_per_second;
  };
  for (int w = 1; w <= facts.longest_draft; ++w) {
    if (facts.coupled)
      consider(SpeculationMode::coupled, w, coupled_speed(*facts.coupled, p, w, facts.batch));
    if (facts.decoupled)
      consider(SpeculationMode::decoupled, w,
               decoupled_speed(*facts.decoupled, p, w, facts.batch, facts.batch));
  }
  return best;
}

}  // namespace

std::vector<RequestPlan> reconfigure(const ReconfigurationFacts& facts,
                                     std::span<const double> acceptance) {
  std::vector<RequestPlan> plans;
  if (acceptance.empty() || (!facts.coupled && !facts.decoupled)) return plans;
  const double mean = std::accumulate(acceptance.begin(), acceptance.end(), 0.0) /
                      static_cast<double>(acceptance.size());
  for (std::size_t r = 0; r < acceptance.size(); ++r) {
    if (acceptance[r] >= mean) continue;
    RequestPlan plan = best_plan(facts, acceptance[r]);
    plan.request = r;
    plans.push_back(plan);
  }
  return plans;
}

}  // namespace paceline::policy
