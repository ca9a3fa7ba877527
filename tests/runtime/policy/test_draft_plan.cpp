#include "runtime/policy/plan/draft_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace paceline::policy {
namespace {

struct Batch {
  std::vector<double> acceptance, worth;
  std::vector<int> longest;
  DraftQuery query;
  DraftPrices prices;

  Batch(std::mt19937& random, int requests, int length, bool free_rounds) {
    const auto uniform = [&] { return static_cast<double>(random() % 1000 + 1) / 1000; };
    for (int r = 0; r < requests; ++r) {
      acceptance.push_back(0.5 + 0.5 * uniform());
      worth.push_back(random() % 5 == 0 ? 0 : 0.4 + 0.6 * uniform());
      longest.push_back(static_cast<int>(random() % (length + 2)));
    }
    query.requests = requests;
    query.acceptance = acceptance;
    query.longest_draft = longest;
    prices.step.push_back(1);
    for (int i = 0; i < requests * length; ++i)
      prices.step.push_back(prices.step.back() + 0.6 * uniform() * uniform());
    prices.first.push_back(0);
    prices.round.push_back(0);
    for (int i = 0; i < requests; ++i) {
      prices.first.push_back(free_rounds ? 0 : prices.first.back() + 0.2 * uniform());
      prices.round.push_back(free_rounds ? 0 : prices.round.back() + 0.1 * uniform());
    }
  }

  /// Goodput of drafting so many tokens for each request.
  [[nodiscard]] double rate(const std::vector<int>& lengths) const {
    double gain = 0;
    double seconds = 0;
    int tokens = 0;
    const int rounds = *std::max_element(lengths.begin(), lengths.end());
    for (int round = 1; round <= rounds; ++round) {
      int n = 0;
      for (std::size_t r = 0; r < lengths.size(); ++r) {
        if (lengths[r] < round) continue;
        ++n;
        gain += worth[r] * std::pow(acceptance[r], round);
      }
      tokens += n;
      seconds += (round == 1 ? prices.first : prices.round)[n];
    }
    return (query.requests + gain) / (seconds + prices.step[tokens]);
  }
};

/// All lengths from 0 to their limits.
template <class F>
void for_each_lengths(const std::vector<int>& limits, F&& f) {
  std::vector<int> lengths(limits.size(), 0);
  for (;;) {
    f(lengths);
    std::size_t r = 0;
    while (r < lengths.size() && lengths[r] == limits[r]) lengths[r++] = 0;
    if (r == lengths.size()) return;
    ++lengths[r];
  }
}

// Where rounds cost nothing, tokens of the highest value are best, however many: the plan is the
// best of all choices there are.
TEST(DraftPlanner, TheBestPlanIsTheBestChoice) {
  std::mt19937 random(1);
  DraftPlanner planner;
  for (int run = 0; run < 300; ++run) {
    const int length = 1 + static_cast<int>(random() % 3);
    Batch batch(random, 1 + static_cast<int>(random() % 4), length, true);
    std::vector<int> limits;
    for (std::size_t r = 0; r < batch.longest.size(); ++r)
      limits.push_back(batch.worth[r] > 0 ? std::min(batch.longest[r], length) : 0);
    double best = 0;
    for_each_lengths(limits, [&](const std::vector<int>& lengths) {
      if (std::any_of(lengths.begin(), lengths.end(), [](int l) { return l > 0; }))
        best = std::max(best, batch.rate(lengths));
    });
    planner.list(batch.query, batch.worth, length);
    const DraftPlan plan = planner.best(batch.query, batch.prices);
    EXPECT_NEAR(plan.rate, best, 1e-9);
  }
}

// A plan's figures are those of the lengths that it comes to, which for_each() lists.
TEST(DraftPlanner, PlansAreAsTheySay) {
  std::mt19937 random(2);
  DraftPlanner planner;
  for (int run = 0; run < 300; ++run) {
    Batch batch(random, 1 + static_cast<int>(random() % 8), 4, false);
    planner.list(batch.query, batch.worth, 4);
    const DraftPlan plan = planner.best(batch.query, batch.prices);
    std::vector<int> lengths(batch.longest.size(), 0);
    int listed = 0;
    double last = 1;
    planner.for_each(plan, [&](const DraftCandidate& candidate) {
      EXPECT_EQ(candidate.depth, ++lengths[candidate.request]) << "a token before its parent";
      EXPECT_LE(candidate.value, last);
      last = candidate.value;
      ++listed;
    });
    EXPECT_EQ(listed, plan.tokens);
    for (std::size_t r = 0; r < lengths.size(); ++r) EXPECT_LE(lengths[r], batch.longest[r]);
    EXPECT_NEAR(plan.rate, plan.tokens > 0 ? batch.rate(lengths) : 0, 1e-9);
  }
}

}  // namespace
}  // namespace paceline::policy
