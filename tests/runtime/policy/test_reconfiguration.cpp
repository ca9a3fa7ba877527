// Algorithm 2: by hand, and against every mode and window.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "runtime/policy/plan/reconfiguration.hpp"

namespace paceline::policy {
namespace {

CostTable table_of(double step, double draft) {
  CostTable table;
  table.decode = CostCurve({{1, step}, {64, step}});
  table.prefill = CostCurve({{64, step}});
  table.drafters = {{"d", CostCurve({{1, draft}}), CostCurve({{1, draft}}), {}}};
  return table;
}

/// With one drafter, which is the verifier's own or on a rank of its own.
ReconfigurationFacts facts_of(const CostTable& table, bool coupled = true, bool decoupled = true) {
  ReconfigurationFacts facts;
  const SpeculationCosts costs{table, table.drafters[0], 0, 64};
  if (coupled) facts.ways.push_back({SpeculationMode::coupled, costs});
  if (decoupled) facts.ways.push_back({SpeculationMode::decoupled, costs});
  return facts;
}

/// Of requests that accept as much either way, all of which are due.
std::vector<RequestPlan> plans_of(const ReconfigurationFacts& facts,
                                  const std::vector<double>& acceptance) {
  std::vector<double> by_way;
  std::vector<std::size_t> due;
  for (const double p : acceptance) {
    due.push_back(due.size());
    by_way.insert(by_way.end(), facts.ways.size(), p);
  }
  return reconfigure(facts, by_way, due);
}

TEST(Reconfiguration, ByHand) {
  // Steps of 10 ms, 1 ms a drafted token. Of p = 0.5 coupled is best at w = 2, 1.75 tokens in 12
  // ms; decoupled at w = 5: 1 + 0.5 / (1.5 - 1/32) * (1/2 + 1/4 + 1/8 + 1/16) in 10 ms is less.
  const CostTable table = table_of(10e-3, 1e-3);
  const std::vector<RequestPlan> plans = plans_of(facts_of(table), {0.5, 0.9});
  ASSERT_EQ(plans.size(), 1U);  // the other is above the mean
  EXPECT_EQ(plans[0].request, 0U);
  EXPECT_EQ(plans[0].mode, SpeculationMode::coupled);
  EXPECT_EQ(plans[0].window, 2);
  EXPECT_NEAR(plans[0].tokens_per_second, 1.75 / 12e-3, 1e-9);
}

TEST(Reconfiguration, AWorkedExample) {
  const CostTable table = table_of(10e-3, 0.5e-3);
  const std::vector<double> acceptance{0.02, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0};
  for (const bool both : {true, false}) {
    const ReconfigurationFacts facts = facts_of(table, both);
    fmt::print("{}\n{:>8} {:>9} {:>10} {:>7} {:>9}\n",
               both ? "either way" : "with drafter ranks alone", "request", "accepted", "mode",
               "window", "tokens/s");
    const std::vector<RequestPlan> plans = plans_of(facts, acceptance);
    EXPECT_EQ(plans.size(), 4U);  // the mean is 0.68
    EXPECT_TRUE(std::is_sorted(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
      return a.tokens_per_second < b.tokens_per_second;
    }));
    for (const RequestPlan& p : plans)
      fmt::print("{:>8} {:>9.2f} {:>10} {:>7} {:>9.1f}\n", p.request, acceptance[p.request],
                 name_of(p.mode), p.window, p.tokens_per_second);
  }
}

TEST(Reconfiguration, IsTheBestOfEveryModeAndWindow) {
  std::mt19937_64 random(9);
  std::uniform_real_distribution<double> share(0, 1);
  int coupled = 0;
  int decoupled = 0;
  int plain = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const CostTable table = table_of(10e-3, 10e-3 * std::pow(share(random), 3));
    const ReconfigurationFacts facts = facts_of(table);
    std::vector<double> acceptance(8);
    for (double& p : acceptance) p = std::pow(share(random), 0.2);
    const double mean = std::accumulate(acceptance.begin(), acceptance.end(), 0.0) / 8;
    const std::vector<RequestPlan> plans = plans_of(facts, acceptance);
    auto plan = plans.begin();
    for (std::size_t r = 0; r < acceptance.size(); ++r) {
      if (acceptance[r] >= mean) continue;
      ASSERT_NE(plan, plans.end());
      EXPECT_EQ(plan->request, r);
      double best = plain_speed(table, 0, 1).tokens_per_second;
      const SpeculationCosts& c = facts.ways[0].costs;
      for (int w = 1; w <= facts.ways[0].longest_draft; ++w) {
        best = std::max({best, coupled_speed(c, acceptance[r], w, 1).tokens_per_second,
                         decoupled_speed(c, acceptance[r], w, 1, 1).tokens_per_second});
      }
      EXPECT_LE(plan->tokens_per_second, best);
      EXPECT_GE(plan->tokens_per_second, best / 1.005 * (1 - 1e-12));
      coupled += plan->mode == SpeculationMode::coupled ? 1 : 0;
      decoupled += plan->mode == SpeculationMode::decoupled ? 1 : 0;
      plain += plan->mode == SpeculationMode::plain ? 1 : 0;
      EXPECT_EQ(plan->mode == SpeculationMode::plain, plan->window == 0);
      ++plan;
    }
    EXPECT_EQ(plan, plans.end());
  }
  fmt::print("{} coupled, {} decoupled, {} plain\n", coupled, decoupled, plain);
  EXPECT_GT(coupled, 0);
  EXPECT_GT(decoupled, 0);
  EXPECT_GT(plain, 0);
}

TEST(Reconfiguration, EachWayHasAnAcceptanceOfItsOwn) {
  // Three requests, coupled and decoupled. The first is best left to the verifier's own drafter,
  // the second to drafter ranks, and the third is above the mean.
  const CostTable table = table_of(10e-3, 0.1e-3);
  const std::vector<double> acceptance{0.7, 0.1, 0.1, 0.7, 0.9, 0.2};
  const std::vector<std::size_t> all{0, 1, 2};
  const std::vector<RequestPlan> plans = reconfigure(facts_of(table), acceptance, all);
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(plans[0].mode, SpeculationMode::coupled);
  EXPECT_EQ(plans[1].mode, SpeculationMode::decoupled);
  // The others still count in the mean where one alone is due.
  const std::vector<std::size_t> second{1};
  const std::vector<RequestPlan> one = reconfigure(facts_of(table), acceptance, second);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].request, 1U);
  EXPECT_EQ(one[0].window, plans[1].window);
}

TEST(Reconfiguration, NothingToChooseFrom) {
  EXPECT_TRUE(plans_of({}, {0.1, 0.9}).empty());
  const CostTable table = table_of(1, 1);
  EXPECT_TRUE(plans_of(facts_of(table), {}).empty());
  EXPECT_TRUE(plans_of(facts_of(table), {0.5, 0.5}).empty());
  // Their sum is rounded up, and so is its mean.
  EXPECT_TRUE(plans_of(facts_of(table), std::vector<double>(33, 0.6)).empty());
  EXPECT_TRUE(reconfigure(facts_of(table), std::vector<double>{0.1, 0.1, 0.9, 0.9}, {}).empty());
}

TEST(Reconfiguration, IsDueEverySoManyTokens) {
  EXPECT_FALSE(reconfiguration_due(0, 999));
  EXPECT_TRUE(reconfiguration_due(999, 1000));
  EXPECT_TRUE(reconfiguration_due(998, 1004));
  EXPECT_FALSE(reconfiguration_due(1000, 1004));
  EXPECT_TRUE(reconfiguration_due(3, 4, 1));
  EXPECT_FALSE(reconfiguration_due(4, 4, 1));
}

}  // namespace
}  // namespace paceline::policy
