// Algorithm 2: by hand, and against every mode and window.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "runtime/policy/reconfiguration.hpp"

namespace paceline::policy {
namespace {

CostTable table_of(double step, double draft) {
  CostTable table;
  table.decode = CostCurve({{1, step}, {64, step}});
  table.prefill = CostCurve({{64, step}});
  table.drafters = {{"d", CostCurve({{1, draft}}), CostCurve({{1, draft}}), {}}};
  return table;
}

ReconfigurationFacts facts_of(const CostTable& table) {
  ReconfigurationFacts facts;
  const SpeculationCosts costs{table, table.drafters[0], 0, 64};
  facts.coupled.emplace(costs);
  facts.decoupled.emplace(costs);
  return facts;
}

TEST(Reconfiguration, ByHand) {
  // Steps of 10 ms, 1 ms a drafted token. Of p = 0.5 coupled is best at w = 2, 1.75 tokens in 12
  // ms; decoupled at w = 5: 1 + 0.5 / (1.5 - 1/32) * (1/2 + 1/4 + 1/8 + 1/16) in 10 ms is less.
  const CostTable table = table_of(10e-3, 1e-3);
  const std::vector<double> acceptance{0.5, 0.9};
  const std::vector<RequestPlan> plans = reconfigure(facts_of(table), acceptance);
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
    ReconfigurationFacts facts = facts_of(table);
    if (!both) facts.coupled.reset();
    fmt::print("{}\n{:>8} {:>9} {:>10} {:>7} {:>9}\n",
               both ? "either way" : "with drafter ranks alone", "request", "accepted", "mode",
               "window", "tokens/s");
    for (const RequestPlan& p : reconfigure(facts, acceptance))
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
    const std::vector<RequestPlan> plans = reconfigure(facts, acceptance);
    auto plan = plans.begin();
    for (std::size_t r = 0; r < acceptance.size(); ++r) {
      if (acceptance[r] >= mean) continue;
      ASSERT_NE(plan, plans.end());
      EXPECT_EQ(plan->request, r);
      double best = plain_speed(table, 0, 1).tokens_per_second;
      for (int w = 1; w <= facts.longest_draft; ++w) {
        const SpeculationCosts& c = *facts.coupled;
        best = std::max({best, coupled_speed(c, acceptance[r], w, 1).tokens_per_second,
                         decoupled_speed(c, acceptance[r], w, 1, 1).tokens_per_second});
      }
      EXPECT_LE(plan->tokens_per_second, best);
      EXPECT_GE(plan->tokens_per_second, best / 1.005 * (1 - 1e-12));
      coupled += plan->mode == SpeculationMode::coupled && plan->window > 0 ? 1 : 0;
      decoupled += plan->mode == SpeculationMode::decoupled ? 1 : 0;
      plain += plan->window == 0 ? 1 : 0;
      ++plan;
    }
    EXPECT_EQ(plan, plans.end());
  }
  fmt::print("{} coupled, {} decoupled, {} plain\n", coupled, decoupled, plain);
  EXPECT_GT(coupled, 0);
  EXPECT_GT(decoupled, 0);
  EXPECT_GT(plain, 0);
}

TEST(Reconfiguration, NothingToChooseFrom) {
  EXPECT_TRUE(reconfigure({}, std::vector<double>{0.1, 0.9}).empty());
  const CostTable table = table_of(1, 1);
  EXPECT_TRUE(reconfigure(facts_of(table), {}).empty());
  EXPECT_TRUE(reconfigure(facts_of(table), std::vector<double>{0.5, 0.5}).empty());
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
