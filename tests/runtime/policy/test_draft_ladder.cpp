// The draft ladder and the initial selection.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/policy/plan/draft_ladder.hpp"
#include "runtime/policy/plan/speculation_speed.hpp"

namespace paceline::policy {
namespace {

/// Figure 10: n-grams, a 0.5B and a 1.5B model for a 32B one.
CostTable figure_10() {
  CostTable table;
  table.decode = CostCurve({{1, 13e-3}, {128, 13e-3}, {512, 45e-3}});
  table.prefill = CostCurve({{512, 40e-3}});
  table.drafters = {
      {"ngram", CostCurve({{1, 1e-6}, {64, 1e-5}}), CostCurve({{1, 1e-7}, {64, 1e-6}}), {}},
      {"model:0.5B",
       CostCurve({{1, 0.8e-3}, {64, 1e-3}}),
       CostCurve({{1, 0.8e-3}, {64, 1e-3}}),
       {}},
      {"model:1.5B", CostCurve({{1, 2e-3}, {64, 3e-3}}), CostCurve({{1, 2e-3}, {64, 3e-3}}), {}}};
  return table;
}

TEST(DraftLadder, RisesWithAcceptanceAndFallsWithTheCostOfDrafting) {
  const std::vector<Ladder> ladders = build_ladders(figure_10(), {16, 0, 8});
  ASSERT_EQ(ladders.size(), 3U);
  const std::string text = ladder_text(figure_10(), {16, 0, 8});
  fmt::print("speedup (draft length)\n{}", text);
  for (const char* batch : {"16 requests", "2 requests", "1 request "})
    EXPECT_NE(text.find(batch), std::string::npos) << batch;
  EXPECT_NE(text.find(fmt::format("{:.2f} ({})", ladders[1].points[12].speedup,
                                  ladders[1].points[12].draft_length)),
            std::string::npos);
  for (const Ladder& ladder : ladders) {
    EXPECT_LT(ladder.speedup(0), 1.0 + 1e-9);  // a draft that is never accepted
    for (std::size_t i = 1; i < ladder.points.size(); ++i)
      EXPECT_GE(ladder.points[i].speedup, ladder.points[i - 1].speedup);
  }
  for (const double p : {0.1, 0.33, 0.72, 0.99}) {
    EXPECT_GT(ladders[0].speedup(p), ladders[1].speedup(p));
    EXPECT_GT(ladders[1].speedup(p), ladders[2].speedup(p));
  }
  // By hand: p = 0.5, the 0.5B model, w = 2: 1.75 tokens in 2 * D(16) + 13 ms.
  const double d = 0.8e-3 + 0.2e-3 * 15 / 63;
  EXPECT_GE(ladders[1].speedup(0.5), 1.75 / (2 * d + 13e-3) * 13e-3);
}

TEST(DraftLadder, IsTheMeanOverTokensMarkedAtRandom) {
  const CostTable table = figure_10();
  const std::vector<Ladder> ladders = build_ladders(table, {16, 0, 8});
  std::mt19937_64 random(5);
  for (const Ladder& ladder : ladders) {
    const LadderPoint& point = ladder.points[15];  // 0.75
    std::bernoulli_distribution accepted(point.acceptance);
    const SpeculationCosts costs{table, table.drafters[&ladder - ladders.data()], 0, 16};
    const double seconds = costs.window_seconds(point.draft_length, 16) +
                           costs.verify_seconds(point.draft_length + 1, 16);
    constexpr int kSteps = 100'000;
    double tokens = 0;
    for (int step = 0; step < kSteps; ++step) {
      int count = 0;
      while (count < point.draft_length && accepted(random)) ++count;
      tokens += count + 1;
    }
    EXPECT_NEAR(tokens / kSteps / seconds * 13e-3 / point.speedup, 1, 0.01) << ladder.method;
  }
}

TEST(DraftLadder, SelectsByHistoricalRates) {
  const std::vector<Ladder> ladders = build_ladders(figure_10(), {16, 0, 8});
  const DraftHistory history(
      {{"ngram", 1e5, 0.2e5}, {"model:0.5B", 1e5, 0.75e5}, {"model:1.5B", 1e5, 0.8e5}});
  const std::vector<RankedMethod> ranked = rank_methods(ladders, history);
  fmt::print("{:<12} {:>9} {:>8}\n", "method", "accepted", "speedup");
  for (const RankedMethod& r : ranked)
    fmt::print("{:<12} {:>9.2f} {:>8.2f}\n", r.method, r.acceptance, r.speedup);
  ASSERT_EQ(ranked.size(), 3U);
  EXPECT_EQ(ranked[0].method, "model:0.5B");
  // Of text that repeats itself n-grams are best.
  EXPECT_EQ(rank_methods(ladders, DraftHistory({{"ngram", 1e5, 0.8e5}})).front().method, "ngram");
  // Nothing is known: as likely, the cheaper is better.
  EXPECT_EQ(rank_methods(ladders, {}).front().method, "ngram");
  EXPECT_EQ(rank_methods(ladders, {}).front().acceptance, kUnknownAcceptance);
}

}  // namespace
}  // namespace paceline::policy
