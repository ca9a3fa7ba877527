// The model of how fast drafted-for requests grow, by hand and against simulations.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/policy/plan/speculation_speed.hpp"
#include "tests/runtime/policy/decoupled_world.hpp"

namespace paceline::policy {
namespace {

DecoupledOutcome simulate(double p, int w, double drafting, int requests, int steps) {
  DecoupledWorld world;
  world.p = p;
  world.window = w;
  world.requests = requests;
  world.draft_first = world.draft_round = drafting / w;
  world.steps = steps;
  return run_decoupled(world);
}

TEST(SpeculationSpeed, ByHand) {
  // p = 1/2, w = 2: ahead for 0.5 / (0.5 + 1 - 0.25) = 0.4 of the steps, in which half a token is
  // won.
  EXPECT_DOUBLE_EQ(decoupled_pace(0.5, 2, 0.2).committed, 1 + 0.4 * 0.5);
  EXPECT_DOUBLE_EQ(decoupled_pace(0.5, 2, 0.2).drafted, 0.4);
  EXPECT_DOUBLE_EQ(coupled_tau(0.5, 2), 1.75);
  EXPECT_DOUBLE_EQ(coupled_tau(1, 3), 4);
  EXPECT_DOUBLE_EQ(decoupled_pace(1, 3, 0).committed, 3);
  EXPECT_DOUBLE_EQ(decoupled_pace(0, 3, 0).committed, 1);
  EXPECT_DOUBLE_EQ(decoupled_pace(0.9, 1, 0).committed, 1);  // it is said before it could be used
  EXPECT_DOUBLE_EQ(decoupled_pace(0.9, 4, 4).committed, 1);  // too slow to be of any use
}

TEST(SpeculationSpeed, PaceAndWasteOfAFastDrafterAreExact) {
  for (const double p : {0.0, 0.3, 0.6, 0.9, 1.0}) {
    for (const int w : {1, 2, 5, 8}) {
      const DecoupledOutcome outcome = simulate(p, w, 0.4, 1, 50'000);
      const Pace pace = decoupled_pace(p, w, 0.4);
      EXPECT_NEAR(pace.committed, outcome.committed / outcome.steps, 0.01 * w) << p << " " << w;
      EXPECT_NEAR(pace.drafted, outcome.verified / outcome.steps, 0.02 * w) << p << " " << w;
      EXPECT_LE(outcome.most_wasted, 2 * w - 1);
    }
  }
}

TEST(SpeculationSpeed, PaceWithOutcomesIsThatOfRandomMarks) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> draw(0, 1);
  const auto agree = [&](double p, int most) {  // leading tokens of `most` that agree
    int agreed = 0;
    while (agreed < most && draw(random) < p) ++agreed;
    return agreed;
  };
  for (const double p : {0.5, 0.8, 0.95}) {
    for (const int w : {2, 4, 8}) {
      EXPECT_NEAR(eager_pace(p, w, {}).committed, decoupled_pace(p, w, 0).committed, 1e-9);
      EXPECT_NEAR(eager_pace(p, w, {1, w, 0}).committed, coupled_tau(p, w - 1), 1e-9);
      for (const Branching branches : {Branching{0.68, w, 0}, Branching{0.68, 1, 0},
                                       Branching{0.68, w, w}, Branching{0.68, w, 2}}) {
        constexpr int kSteps = 200000;
        const auto foreseen = [&](int k) {
          return k < branches.drafted && draw(random) < branches.second;
        };
        bool ahead = false;
        double tokens = 0;
        double rows = 0;
        for (int step = 0; step < kSteps; ++step) {
          const int depth = ahead ? w - 1 : 0;
          const int k = agree(p, depth + 1);  // the last one is the target's own token
          tokens += std::min(k, depth) + 1;
          if (ahead) {
            rows += depth;
            for (int t = 0; t < std::min(branches.tried, depth - 1); ++t) rows += depth - t;
          }
          const int further =
              depth - k - 1;  // tokens of a branch that leaves here, after its first
          if (ahead && k < branches.tried && further > 0) {
            const bool right = foreseen(k);
            const int j = right ? agree(p, further + 1) : 0;
            tokens += right ? 1 + std::min(j, further) : 0;
            ahead = right && j == further + 1;
          } else {
            ahead = k > depth || foreseen(k);
          }
        }
        const Pace pace = eager_pace(p, w, branches);
        EXPECT_NEAR(tokens / kSteps / pace.committed, 1, 0.01) << p << ' ' << w;
        EXPECT_NEAR(rows / kSteps / pace.drafted, 1, 0.01) << p << ' ' << w;
      }
    }
  }
}

TEST(SpeculationSpeed, PaceOfASlowerDrafter) {
  double worst = 0;
  double sum = 0;
  int cases = 0;
  fmt::print("{:>9} {:>5} {:>3} {:>10} {:>10}\n", "drafting", "p", "w", "simulated", "model");
  for (const double drafting : {0.6, 0.75, 0.9, 1.0, 1.3, 1.6, 2.0, 3.0}) {
    for (const double p : {0.3, 0.6, 0.8, 0.95}) {
      for (const int w : {2, 4, 8}) {
        const DecoupledOutcome outcome = simulate(p, w, drafting, 32, 2'000);
        const double simulated = outcome.committed / outcome.steps / 32;
        const double model = decoupled_pace(p, w, drafting).committed;
        const double error = std::abs(model / simulated - 1);
        worst = std::max(worst, error);
        sum += error;
        ++cases;
        EXPECT_LE(outcome.most_wasted, 2 * w - 1);
        if (w == 4)
          fmt::print("{:>9} {:>5} {:>3} {:>10.3f} {:>10.3f}\n", drafting, p, w, simulated, model);
      }
    }
  }
  fmt::print("error {:.1f} % on average, {:.1f} % at most\n", 100 * sum / cases, 100 * worst);
  EXPECT_LT(worst, 0.14);
  EXPECT_LT(sum / cases, 0.03);
}

CostTable gpu() {
  CostTable table;
  // Weights are read in 10 ms; from 64 rows on arithmetic bounds.
  table.decode = CostCurve({{1, 10e-3}, {64, 10e-3}, {128, 20e-3}, {256, 40e-3}}, 1e-9);
  table.drafted_position = 5e-10;
  table.prefill = CostCurve({{256, 40e-3}});
  table.drafters.push_back({"model:small",
                            CostCurve({{1, 1.2e-3}, {64, 1.3e-3}}),
                            CostCurve({{1, 1e-3}, {64, 1.1e-3}}),
                            {}});
  return table;
}

TEST(SpeculationSpeed, StepsAreAsLongAsTheirDraftsMakeThem) {
  const CostTable table = gpu();
  const SpeculationCosts costs{table, table.drafters[0], 0, 64};
  EXPECT_NEAR(costs.window_seconds(4, 1), 1.2e-3 + 3 * 1e-3, 1e-12);
  EXPECT_NEAR(costs.window_seconds(1, 128), 2 * 1.3e-3, 1e-12);  // two calls
  EXPECT_NEAR(costs.verify_seconds(4, 32), 20e-3, 1e-12);        // 128 rows
  const Speed coupled = coupled_speed(costs, 0.5, 2, 1);
  EXPECT_NEAR(coupled.step, 1.2e-3 + 1e-3 + 10e-3, 1e-12);
  EXPECT_NEAR(coupled.tokens_per_second, 1.75 / coupled.step, 1e-9);
  // With 64 requests a drafted row costs 20 ms / 128 for each, whichever are ahead.
  const Speed decoupled = decoupled_speed(costs, 0.5, 2, 64, 64);
  EXPECT_NEAR(decoupled.step, 10e-3 * (1 + decoupled_pace(0.5, 2, 0.2).drafted), 1e-12);
}

TEST(SpeculationSpeed, DraftsOfUnequalLengthTakeTheCallsOfTheLongest) {
  const CostTable table = gpu();
  const SpeculationCosts costs{table, table.drafters[0], 0, 64};
  // Of 48 drafts 16 have one token, 16 two and 16 three: three calls, for 48, 32 and 16 requests.
  const Speed uneven = uneven_coupled_speed(costs, 0.5, 2, 8, 48);
  const double first = 1.2e-3 + 0.1e-3 * 47 / 63;
  const double others = 2 * 1e-3 + 0.1e-3 * (31 + 15) / 63;
  EXPECT_NEAR(uneven.draft, first + others, 1e-12);
  EXPECT_NEAR(uneven.step, uneven.draft + 22.5e-3, 1e-12);  // 144 rows
  EXPECT_NEAR(uneven.committed, (1.5 + 1.75 + 1.875) / 3, 1e-12);
  EXPECT_NEAR(uneven.tokens_per_second, uneven.committed / uneven.step, 1e-9);
  EXPECT_LT(uneven.tokens_per_second, coupled_speed(costs, 0.5, 2, 48).tokens_per_second);
  // One request has two thirds of a second call a step, and one third of a third.
  EXPECT_NEAR(uneven_coupled_speed(costs, 0.5, 2, 8, 1).draft, 1.2e-3 + 1e-3, 1e-12);
  // No draft is longer than the longest, and a draft may have no token.
  const Speed shortest = uneven_coupled_speed(costs, 0.5, 1, 1, 3);
  EXPECT_NEAR(shortest.draft, 1.2e-3 + 0.1e-3 / 63, 1e-12);
  EXPECT_NEAR(shortest.committed, (1 + 1.5 + 1.5) / 3, 1e-12);
}

TEST(SpeculationSpeed, SpeedIsThatOfASimulatedBatch) {
  const CostTable table = gpu();
  const SpeculationCosts costs{table, table.drafters[0], 0, 64};
  for (const double p : {0.5, 0.8}) {
    for (const int w : {2, 4, 8}) {
      DecoupledWorld world;
      world.p = p;
      world.window = w;
      world.requests = 32;
      world.draft_first = costs.window_seconds(1, 32);
      world.draft_round = (costs.window_seconds(2, 32) - world.draft_first);
      world.step = [&](double rows) { return table.decode.seconds(rows); };
      world.steps = 4'000;
      const DecoupledOutcome outcome = run_decoupled(world);
      const double simulated = outcome.committed / outcome.seconds / 32;
      EXPECT_NEAR(decoupled_speed(costs, p, w, 32, 32).tokens_per_second / simulated, 1, 0.1)
          << p << " " << w;
    }
  }
}

TEST(SpeculationSpeed, UsefulWindowsEndWhereDraftingTakesLonger) {
  // V = 10 ms and D = 1 ms whatever the batch: ceil(beta / alpha) is 10.
  CostTable table = gpu();
  table.decode = CostCurve({{1, 10e-3}, {1024, 10e-3}});
  table.drafters[0].first = table.drafters[0].round = CostCurve({{1, 1e-3}, {64, 1e-3}});
  const SpeculationCosts costs{table, table.drafters[0], 0, 64};
  EXPECT_TRUE(useful_window(costs, 4 * 10, 4, 4));
  EXPECT_FALSE(useful_window(costs, 4 * 10 + 1, 4, 4));
  const Affine line = fit_affine([](double b) { return 3 * b + 2; }, 10);
  EXPECT_DOUBLE_EQ(line.slope, 3);
  EXPECT_DOUBLE_EQ(line.constant, 2);
  EXPECT_DOUBLE_EQ(line(10), 32);
}

}  // namespace
}  // namespace paceline::policy
