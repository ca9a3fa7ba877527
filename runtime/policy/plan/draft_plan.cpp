#include "runtime/policy/plan/draft_plan.hpp"

#include <algorithm>

namespace paceline::policy {
namespace {

constexpr double kLeastValue = 0.02;  ///< tokens; candidates of less value are not considered

}  // namespace

StepShape plain_step(const DraftQuery& query) {
  return {static_cast<double>(query.requests), 0, static_cast<double>(query.prefill_rows),
          query.context};
}

void DraftPrices::of_drafting(const CostTable& costs, const DraftQuery& query,
                              std::size_t leading) {
  first.resize(static_cast<std::size_t>(query.requests) + 1);
  round.resize(first.size());
  for (int n = 1; n <= query.requests; ++n) {
    first[n] = costs.first_seconds(n, query.context, leading);
    round[n] = costs.round_seconds(n, query.context, leading);
  }
}

void DraftPrices::of_steps(const CostTable& costs, const DraftQuery& query, std::size_t candidates,
                           double rows) {
  StepShape shape = plain_step(query);
  step.resize(candidates + 1);
  for (std::size_t i = 0; i <= candidates; ++i) {
    shape.drafted = rows * static_cast<double>(i);
    step[i] = costs.step_seconds(shape);
  }
}

void DraftPlanner::list(const DraftQuery& query, std::span<const double> worth, int max_length) {
  candidates_.clear();
  for (int r = 0; r < query.requests; ++r) {
    if (worth[r] == 0) continue;
    double value = worth[r];
    const int longest = std::min(max_length, query.longest_draft[r]);
    for (int depth = 1; depth <= longest; ++depth) {
      value *= query.acceptance[r];
      if (depth > 1 && value < kLeastValue) break;
      candidates_.push_back({value, depth, r});
    }
  }
  std::sort(candidates_.begin(), candidates_.end(),
            [](const DraftCandidate& a, const DraftCandidate& b) {
              if (a.value != b.value) return a.value > b.value;
              if (a.depth != b.depth) return a.depth < b.depth;
              return a.request < b.request;
            });
}

/// Looks at every prefix of every depth, because goodput can have several peaks: the first token of
/// a round pays for the whole round, so a prefix may pay although the next shorter one does not.
DraftPlan DraftPlanner::best(const DraftQuery& query, const DraftPrices& prices,
                             Prefixes prefixes) const {
  DraftPlan best;
  int deepest = 0;
  for (const DraftCandidate& candidate : candidates_) deepest = std::max(deepest, candidate.depth);
  for (int depth = 1; depth <= deepest; ++depth) {
    DraftPlan plan;
    plan.depth = depth;
    double draft_seconds = 0;
    std::vector<int> in_round(static_cast<std::size_t>(depth) + 1);
    for (const DraftCandidate& candidate : candidates_) {
      if (candidate.depth > depth) continue;
      int& n = in_round[candidate.depth];
      const std::vector<double>& price = candidate.depth == 1 ? prices.first : prices.round;
      draft_seconds += price[n + 1] - price[n];
      ++n;
      ++plan.tokens;
      plan.gain += candidate.value;
      plan.seconds = draft_seconds + prices.step[plan.tokens];
      plan.rate = (query.requests + plan.gain) / plan.seconds;
      if (prefixes == Prefixes::all && plan.rate > best.rate) best = plan;
    }
    if (plan.rate > best.rate) best = plan;
  }
  return best;
}

}  // namespace paceline::policy
