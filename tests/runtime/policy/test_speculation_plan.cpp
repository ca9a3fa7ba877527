// Algorithm 1: by hand, and against a search without pruning.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/policy/plan/speculation_plan.hpp"
#include "runtime/policy/plan/speculation_speed.hpp"

namespace paceline::policy {
namespace {

/// A GPU group: 32B-like steps, flat to 64 rows and bound by arithmetic past them.
CostTable gpu(int tp, double draft = 1e-3) {
  CostTable table;
  const double s = 1.0 / tp + 0.1;  // what is exchanged does not shrink
  table.decode =
      CostCurve({{1, 40e-3 * s}, {64, 40e-3 * s}, {128, 70e-3 * s}, {1024, 500e-3 * s}}, 2e-9 * s);
  table.drafted_position = 4e-10 * s;
  table.prefill = CostCurve({{1024, 400e-3 * s}});
  table.drafters.push_back({"model:0.5B", CostCurve({{1, 1.5 * draft}, {256, 2 * draft}}),
                            CostCurve({{1, draft}, {256, 1.5 * draft}}), CostCurve({{16, draft}})});
  table.drafters.push_back(
      {"ngram", CostCurve({{1, 1e-6}, {256, 2e-4}}), CostCurve({{1, 1e-7}, {256, 1e-6}}), {}});
  return table;
}

PlanFacts facts(int ranks, double requests) {
  PlanFacts f;
  f.ranks = ranks;
  f.requests = requests;
  f.max_batch = 256;
  f.context = 1000;
  f.longest_draft = 16;
  for (const int tp : {1, 2, 4, 8}) f.verifiers.push_back({tp, gpu(tp)});
  f.methods = {{"model:0.5B", 0.8}, {"ngram", 0.3, false}};
  return f;
}

/// The best decoupled plan: every window, of every number of drafters that the paper looks at.
double brute_force(const PlanFacts& f, int longest) {
  double best = 0;
  for (const VerifierConfiguration& v : f.verifiers) {
    for (int drafters = 1; drafters < f.ranks; ++drafters) {
      const int groups = (f.ranks - drafters) / v.tp;
      if (groups == 0 || drafters > groups * v.tp) continue;
      const double active = std::min(f.requests, static_cast<double>(groups) * f.max_batch);
      for (const DraftMethod& m : f.methods) {
        for (const DrafterCosts& d : v.table.drafters) {
          if (d.name != m.name || !m.apart) continue;
          for (int w = 2; w <= longest; ++w) {
            const Speed s =
                decoupled_speed({v.table, d, f.context, f.max_batch}, m.acceptance, w,
                                std::ceil(active / groups), std::ceil(active / drafters));
            best = std::max(best, active * s.tokens_per_second);
          }
        }
      }
    }
  }
  return best;
}

void print(const std::string& title, const std::vector<SpeculationPlan>& plans, std::size_t most) {
  fmt::print("{}\n{:>4} {:>10} {:>3} {:>7} {:>9} {:>7} {:>10}  {}\n", title, "", "mode", "tp",
             "groups", "drafters", "length", "tokens/s", "by");
  for (std::size_t i = 0; i < std::min(most, plans.size()); ++i) {
    const SpeculationPlan& p = plans[i];
    fmt::print("{:>4} {:>10} {:>3} {:>7} {:>9} {:>7} {:>10.0f}  {}\n", i + 1, name_of(p.mode), p.tp,
               p.groups, p.drafters, p.draft_length, p.tokens_per_second, p.method);
  }
}

TEST(SpeculationPlan, ByHand) {
  // Two ranks, two requests. Steps of 10 ms however many rows, drafting that costs 1 ms a token.
  PlanFacts f;
  f.ranks = 2;
  f.requests = 2;
  f.longest_draft = 4;
  CostTable table;
  table.decode = CostCurve({{1, 10e-3}, {64, 10e-3}});
  table.prefill = CostCurve({{64, 10e-3}});
  table.drafters.push_back(
      {"d", CostCurve({{1, 1e-3}, {64, 1e-3}}), CostCurve({{1, 1e-3}, {64, 1e-3}}), {}});
  f.verifiers = {{1, table}};
  f.methods = {{"d", 0.5}};
  const std::vector<SpeculationPlan> plans = plan_speculation(f, {});
  ASSERT_EQ(plans.size(), 3U);
  // Coupled, a request a rank: w = 1 gives 1.5 / 11 ms, w = 2 gives 1.75 / 12 ms, w = 3 gives
  // 1.875 / 13 ms, w = 4 gives 1.9375 / 14 ms.
  EXPECT_EQ(plans[0].mode, SpeculationMode::coupled);
  EXPECT_EQ(plans[0].draft_length, 2);
  EXPECT_NEAR(plans[0].tokens_per_second, 2 * 1.75 / 12e-3, 1e-9);
  // Decoupled, both requests on one rank, as fast for two: 1 + 0.5 / (1.5 - 0.5^w) *
  // (0.5 - 0.5^w) * 2 / 10 ms.
  EXPECT_EQ(plans[1].mode, SpeculationMode::decoupled);
  EXPECT_EQ(plans[1].draft_length, 4);
  EXPECT_NEAR(plans[1].tokens_per_second,
              2 * (1 + 0.5 / (1.5 - 0.0625) * (0.5 + 0.25 + 0.125)) / 10e-3, 1e-9);
  EXPECT_EQ(plans[1].settings, "speculation.mode=decoupled layout.drafters=1 speculation.window=4");
  EXPECT_EQ(plans[2].mode, SpeculationMode::plain);
  EXPECT_NEAR(plans[2].tokens_per_second, 2 / 10e-3, 1e-9);
}

TEST(SpeculationPlan, AWorkedExample) {
  const PlanFacts f = facts(64, 4096);
  const std::vector<SpeculationPlan> plans = plan_speculation(f, {});
  print("64 ranks, 4096 requests, 0.5B accepted 0.8, n-grams 0.3", plans, 8);
  fmt::print("   1: {}\n", plans.front().explanation);
  EXPECT_TRUE(std::is_sorted(plans.begin(), plans.end(),
                             [](const SpeculationPlan& a, const SpeculationPlan& b) {
                               return a.tokens_per_second > b.tokens_per_second;
                             }));
}

TEST(SpeculationPlan, OnFewRanksADrafterRankIsMissedMore) {
  PlanFacts f = facts(2, 512);
  f.verifiers = {{1, gpu(1)}};
  const std::vector<SpeculationPlan> plans = plan_speculation(f, {});
  print("2 ranks, 512 requests", plans, 8);
  EXPECT_NE(plans.front().mode, SpeculationMode::decoupled);
}

TEST(SpeculationPlan, DecouplesWhereDraftingIsLongAndRanksAreMany) {
  // Drafts that are nearly always right, of a model that takes a moment: in turn with the steps
  // that adds up, ahead of them a few ranks do it for all.
  PlanFacts f = facts(32, 32);
  f.verifiers = {{4, gpu(4, 0.5e-3)}};
  f.methods = {{"model:0.5B", 0.98}};
  const std::vector<SpeculationPlan> plans = plan_speculation(f, {});
  print("32 ranks, 32 requests, drafts that are right", plans, 8);
  EXPECT_EQ(plans.front().mode, SpeculationMode::decoupled);
}

TEST(SpeculationPlan, PruningLosesNothing) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> acceptance(0.05, 0.98);
  std::uniform_real_distribution<double> exponent(-4.5, -2);
  for (int trial = 0; trial < 100; ++trial) {
    PlanFacts f = facts(1 << (1 + trial % 5), 1 << (trial % 11));
    f.longest_draft = 48;
    const double draft = std::pow(10, exponent(random));
    f.verifiers.clear();
    for (const int tp : {1, 2, 4}) {
      if (tp < f.ranks) f.verifiers.push_back({tp, gpu(tp, draft)});
    }
    f.methods = {{"model:0.5B", acceptance(random)}};
    const std::vector<SpeculationPlan> plans = plan_speculation(
        f, {.mode = SpeculationMode::decoupled, .groups = {}, .drafters = {}, .window = {}});
    ASSERT_FALSE(plans.empty());
    EXPECT_NEAR(plans.front().tokens_per_second / brute_force(f, 48), 1, 1e-9)
        << f.ranks << " ranks, " << f.requests << " requests, " << draft << " s, "
        << f.methods[0].acceptance << ", length " << plans.front().draft_length;
  }
}

TEST(SpeculationPlan, WhatIsSettledIsKeptTo) {
  const PlanFacts f = facts(16, 1024);
  for (const SpeculationPlan& plan :
       plan_speculation(f, {.mode = {}, .groups = 3, .drafters = 2, .window = 5})) {
    EXPECT_EQ(plan.mode, SpeculationMode::decoupled);
    EXPECT_EQ(plan.groups, 3);
    EXPECT_EQ(plan.drafters, 2);
    EXPECT_EQ(plan.draft_length, 5);
    EXPECT_LE(plan.groups * plan.tp + plan.drafters, 16);
  }
  for (const SpeculationPlan& plan :
       plan_speculation(f, {.mode = {}, .groups = {}, .drafters = 0, .window = {}}))
    EXPECT_NE(plan.mode, SpeculationMode::decoupled);
  EXPECT_TRUE(plan_speculation(
                  f, {.mode = SpeculationMode::coupled, .groups = {}, .drafters = 2, .window = {}})
                  .empty());
  EXPECT_TRUE(
      plan_speculation(f, {.mode = {}, .groups = 17, .drafters = {}, .window = {}}).empty());
  for (const SpeculationPlan& plan : plan_speculation(f, {})) {
    if (plan.mode == SpeculationMode::decoupled) {
      EXPECT_EQ(plan.method, "model:0.5B");
    }
  }
  // A method without costs is not one.
  PlanFacts unknown = f;
  unknown.methods = {{"model:other", 0.9}};
  for (const SpeculationPlan& plan : plan_speculation(unknown, {}))
    EXPECT_EQ(plan.mode, SpeculationMode::plain);
}

TEST(SpeculationPlan, WhoAsksForDrafterRanksGetsThemThoughNoWindowIsUseful) {
  PlanFacts f = facts(4, 1024);
  f.longest_draft = 1;
  for (const SpeculationPlan& plan : plan_speculation(f, {}))
    EXPECT_NE(plan.mode, SpeculationMode::decoupled);
  const std::vector<SpeculationPlan> asked = plan_speculation(
      f, {.mode = SpeculationMode::decoupled, .groups = {}, .drafters = {}, .window = {}});
  ASSERT_FALSE(asked.empty());
  for (const SpeculationPlan& plan : asked) EXPECT_EQ(plan.draft_length, 1);
}

TEST(SpeculationPlan, ARunDrainsUntilTheLastRequest) {
  for (const double requests : {1.0, 2.0, 3.0, 512.0, 16384.0}) {
    const std::vector<DrainPart> parts = drain_of(requests);
    double shares = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      shares += parts[i].share;
      EXPECT_LE(parts[i].requests, parts[i > 0 ? i - 1 : i].requests);
      EXPECT_GE(parts[i].reached, parts[i > 0 ? i - 1 : i].reached);
    }
    EXPECT_NEAR(shares, 1, 1e-9);
    EXPECT_LE(parts.front().requests, requests);
    EXPECT_DOUBLE_EQ(parts.back().requests, 1);
    EXPECT_EQ(parts.size(), 1 + static_cast<std::size_t>(std::ceil(std::log2(requests))));
  }
  // Tokens over requests are the positions that pass: all parts but the first are as long.
  const std::vector<DrainPart> parts = drain_of(512);
  for (std::size_t i = 1; i < parts.size(); ++i)
    EXPECT_NEAR(parts[i].share / parts[i].requests, 0.6 * parts[0].share / parts[0].requests, 1e-9);
}

TEST(SpeculationPlan, TheStartPicksCoupledDraftsAndTheDrainDrafterRanks) {
  PlanFacts f = facts(16, 128);
  f.verifiers = {{4, gpu(4)}};
  f.methods = {{"model:0.5B", 0.8}};
  f.longest_draft = 8;
  const std::vector<SpeculationPlan> start = plan_speculation(f, {});
  print("16 ranks, 128 requests, by the start", start, 4);
  EXPECT_EQ(start.front().mode, SpeculationMode::coupled);
  f.drain = drain_of(f.requests);
  f.adapts = true;
  f.one_by_one = true;
  f.outcomes = true;
  const std::vector<SpeculationPlan> drain = plan_speculation(f, {});
  print("by the drain", drain, 4);
  EXPECT_EQ(drain.front().mode, SpeculationMode::decoupled);
  // Of drafts that take next to nothing no step need be relieved.
  f.verifiers = {{4, gpu(4, 0.05e-3)}};
  f.outcomes = false;
  EXPECT_EQ(plan_speculation(f, {}).front().mode, SpeculationMode::coupled);
}

TEST(SpeculationPlan, AJoinedGroupHoldsNoMoreThanItsBatch) {
  // Steps of 1 s in a small group and of 0.5 in a large one, however many rows.
  const auto flat = [](double seconds) {
    CostTable table;
    table.decode = CostCurve({{1, seconds}, {1024, seconds}});
    table.prefill = CostCurve({{1024, seconds}});
    return table;
  };
  PlanFacts f;
  f.ranks = 3;
  f.max_batch = 64;
  f.verifiers = {{1, flat(1)}};
  f.joined = {{2, flat(0.5)}};
  const auto speed = [&](double requests) {
    f.requests = requests;
    f.drain = {{requests, 1, 0}};
    const PlanSettings plain{SpeculationMode::plain, {}, {}, {}};
    return plan_speculation(f, plain).front().tokens_per_second;
  };
  EXPECT_NEAR(speed(64), 128, 1e-9);  // all in the large group
  EXPECT_NEAR(speed(100), 100, 1e-9) << "36 have to wait for the small one";
  EXPECT_NEAR(speed(192), 192, 1e-9) << "not 256, for the large one holds 64";
}

TEST(SpeculationPlan, GroupsThatJoinAreForeseenForTheLastRequests) {
  PlanFacts f = facts(16, 512);
  f.verifiers = {{4, gpu(4)}};
  const PlanSettings plain{SpeculationMode::plain, {}, {}, {}};
  f.drain = drain_of(f.requests);
  const double alone = plan_speculation(f, plain).front().tokens_per_second;
  f.joined = {{8, gpu(8)}};
  const SpeculationPlan joined = plan_speculation(f, plain).front();
  EXPECT_GT(joined.tokens_per_second, 1.05 * alone);
  EXPECT_EQ(joined.tp, 4);
  EXPECT_EQ(joined.groups, 4);
  // Of three groups one has no neighbour, and decodes what the larger one leaves.
  f.ranks = 12;
  const double three = plan_speculation(f, plain).front().tokens_per_second;
  EXPECT_LT(three, joined.tokens_per_second);
  f.joined.clear();
  EXPECT_GT(three, plan_speculation(f, plain).front().tokens_per_second);
  f.ranks = 16;
  // Groups that are no faster never join, nor do those that need more ranks than there are.
  f.joined = {{8, gpu(4)}};
  EXPECT_DOUBLE_EQ(plan_speculation(f, plain).front().tokens_per_second, alone);
  f.joined = {{32, gpu(32)}};
  EXPECT_DOUBLE_EQ(plan_speculation(f, plain).front().tokens_per_second, alone);
}

TEST(SpeculationPlan, ADraftOfFixedLengthIsForeseenAtThatLength) {
  PlanFacts f = facts(4, 1024);
  PlanSettings settings;
  settings.mode = SpeculationMode::coupled;
  const SpeculationPlan best = plan_speculation(f, settings).front();
  ASSERT_LT(best.draft_length, f.longest_draft);
  f.shortest_draft = f.longest_draft;
  const SpeculationPlan fixed = plan_speculation(f, settings).front();
  EXPECT_EQ(fixed.draft_length, f.longest_draft);
  EXPECT_LT(fixed.tokens_per_second, best.tokens_per_second);
  f.shortest_draft = f.longest_draft = best.draft_length;
  f.methods = {{best.method, best.method == "ngram" ? 0.3 : 0.8}};
  EXPECT_DOUBLE_EQ(plan_speculation(f, settings).front().tokens_per_second, best.tokens_per_second);
}

TEST(SpeculationPlan, VerifiersThatAdaptDraftUnequalLengths) {
  PlanFacts f = facts(16, 64);
  f.verifiers = {{4, gpu(4)}};
  f.methods = {{"model:0.5B", 0.8}};
  f.adapts = true;
  const std::vector<SpeculationPlan> plans =
      plan_speculation(f, {SpeculationMode::coupled, {}, {}, {}});
  ASSERT_EQ(plans.size(), 1U);
  const CostTable& table = f.verifiers[0].table;
  const SpeculationCosts costs{table, table.drafters[0], f.context, f.max_batch};
  const Speed drafts = uneven_coupled_speed(costs, 0.8, plans[0].draft_length, f.longest_draft, 16);
  EXPECT_NEAR(plans[0].tokens_per_second / (64 * drafts.tokens_per_second), 1, 1e-9);
  for (int w = 1; w <= f.longest_draft; ++w) {
    EXPECT_LE(uneven_coupled_speed(costs, 0.8, w, f.longest_draft, 16).tokens_per_second,
              drafts.tokens_per_second);
  }
}

TEST(SpeculationPlan, TheSearchAt512RanksIsSmall) {
  // Some 10^5 windows are looked at, in a fraction of a second.
  PlanFacts f = facts(512, 16384);
  f.longest_draft = 32;
  const std::vector<SpeculationPlan> plans = plan_speculation(f, {});
  print("512 ranks, 16384 requests", plans, 5);
  EXPECT_FALSE(plans.empty());
}

}  // namespace
}  // namespace paceline::policy
