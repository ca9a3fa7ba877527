// Draft lengths: the selection, and the policies in simulated time.
#include "runtime/policy/length/draft_length.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <tuple>

#include "runtime/core/quantile.hpp"
#include "runtime/policy/length/goodput.hpp"
#include "tests/runtime/policy/decoding_world.hpp"

namespace paceline::policy {
namespace {

TEST(DraftSelection, TakesTheBestOfTheWholeBatchAndKeepsParents) {
  const std::vector<double> values{0.9, 0.9, 0.2, 0.5, 0.1, 0.9, 0.9};
  const std::vector<int> offsets{0, 3, 5, 7};
  std::vector<int> order;
  order_by_value({values, offsets}, order);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 5, 6, 3, 2, 4}));
}

TEST(FixedLength, HeedsRoom) {
  FixedLength policy(4);
  const std::vector<double> acceptance{0.5, 0.5};
  const std::vector<int> longest{1, 9};
  DraftQuery query;
  query.requests = 2;
  query.acceptance = acceptance;
  query.longest_draft = longest;
  std::vector<int> lengths(2);
  policy.choose(query, lengths);
  EXPECT_EQ(lengths, (std::vector<int>{1, 4}));
}

/// Paths that are asked for, of requests with these rates, where a step takes 10 ms and each row
/// past so many 0.05 ms more.
std::vector<int> paths_of(std::vector<double> acceptance, double flat, int most = 4) {
  CostTable costs;
  costs.decode = CostCurve({{1, 0.01}, {flat, 0.01}, {flat + 1000, 0.01 + 0.05}});
  Goodput policy(costs, 8);
  const std::vector<int> longest(acceptance.size(), 8);
  DraftQuery query;
  query.requests = static_cast<int>(acceptance.size());
  query.acceptance = acceptance;
  query.longest_draft = longest;
  std::vector<int> lengths(acceptance.size());
  for (int step = 0; step < 20 && lengths[0] == 0; ++step) {  // a few are trials without drafts
    EXPECT_TRUE(policy.considers(query));
    policy.choose(query, lengths);
  }
  EXPECT_GT(lengths[0], 0);
  std::vector<int> paths;
  for (int r = 0; r < query.requests; ++r) paths.push_back(policy.paths(query, r, most));
  return paths;
}

TEST(Goodput, AsksForMorePathsTheLessARowCostsAndTheMoreIsRefused) {
  EXPECT_EQ(paths_of({0.5}, 100), std::vector<int>{4}) << "rows are free";
  EXPECT_EQ(paths_of({0.5}, 100, 2), std::vector<int>{2});
  EXPECT_EQ(paths_of(std::vector<double>(64, 0.5), 2), std::vector<int>(64, 1)) << "they are dear";
  // A row must be worth some 4 % of a token: the easy one refuses less than that.
  EXPECT_EQ(paths_of({0.97, 0.1}, 2), (std::vector<int>{1, 4}));
}

double plain_rate(const WorldOptions& options) {
  WorldOptions world = options;
  FixedLength plain(0);
  return World(world).run(plain).rate();
}

WorldResult goodput(const WorldOptions& options) {
  World world(options);
  Goodput policy(world.cost_table(), 8);
  return world.run(policy);
}

using Place =
    std::tuple<const char*, double, int, double>;  // engine, draft cost, batch, acceptance

class GoodputEverywhere : public ::testing::TestWithParam<Place> {
 protected:
  static WorldOptions world() {
    const auto [engine, draft_cost, batch, acceptance] = GetParam();
    WorldOptions options;
    const std::string name = engine;
    options.step = name == "gpu" ? gpu_step : name == "cpu" ? cpu_step : tiny_step;
    options.acceptance.assign(batch, acceptance);
    if (draft_cost > 0) {
      options.round = [step = options.step, draft_cost](double n) { return draft_cost * step(n); };
      options.catch_up = draft_cost * options.step(512) / 512;
    }
    return options;
  }
};

TEST_P(GoodputEverywhere, IsNeverMuchBelowPlainOrTheBestFixedLength) {
  WorldOptions options = world();
  // The worst of some runs against plain decoding; the usual one against the best fixed length,
  // which a measurement that comes out wrong at the wrong time may keep from being found.
  std::vector<double> rates;
  for (options.seed = 1; options.seed <= 3; ++options.seed) {
    rates.push_back(goodput(options).rate());
    EXPECT_GE(rates.back(), 0.97 * plain_rate(options));
  }
  const double rate = quantile(rates, 0.5);
  WorldOptions shorter = options;
  shorter.steps = 1000;  // fixed lengths have nothing to learn
  // A dear drafter that was left behind while costs were learned may never pay for catching up.
  const double share = std::get<1>(GetParam()) > 0.2 ? 0.85 : 0.9;
  EXPECT_GE(rate, share * best_fixed_rate(shorter));
}

INSTANTIATE_TEST_SUITE_P(Worlds, GoodputEverywhere,
                         ::testing::Combine(::testing::Values("gpu", "cpu", "tiny"),
                                            ::testing::Values(0.0, 0.1, 0.3),
                                            ::testing::Values(1, 4, 16, 64),
                                            ::testing::Values(0.0, 0.3, 0.6, 0.9)));
INSTANTIATE_TEST_SUITE_P(LargeBatches, GoodputEverywhere,
                         ::testing::Combine(::testing::Values("gpu", "cpu"), ::testing::Values(0.1),
                                            ::testing::Values(256), ::testing::Values(0.0, 0.9)));

TEST(Goodput, BeatsEveryFixedLengthWhenTheBatchShrinks) {
  WorldOptions options;
  options.step = cpu_step;
  options.round = [](double n) { return 0.1 * cpu_step(n); };
  options.catch_up = 1e-4;
  options.steps = 100'000;
  for (int r = 0; r < 64; ++r) {
    options.acceptance.push_back(0.75);
    options.lengths.push_back(r < 62 ? 200 + 12 * r : 5000);  // the long tail
  }
  const double rate = goodput(options).rate();
  EXPECT_GT(rate, 1.03 * best_fixed_rate(options));
}

TEST(Goodput, BeatsEveryFixedLengthOnRequestsThatDiffer) {
  WorldOptions options;
  for (int r = 0; r < 24; ++r) options.acceptance.push_back(r % 3 == 0 ? 0.95 : 0.15);
  EXPECT_GT(goodput(options).rate(), 1.05 * best_fixed_rate(options));
}

TEST(Goodput, BeatsEveryFixedLengthWhenScoresTellTokensApart) {
  WorldOptions options;
  options.acceptance.assign(32, 0.5);
  options.spread = 0.9;
  EXPECT_GT(goodput(options).rate(), 1.1 * best_fixed_rate(options));
}

TEST(Goodput, DoesNotMindADrafterThatMostlyFindsNothing) {
  for (const int batch : {4, 64}) {
    WorldOptions options;
    options.acceptance.assign(batch, 0.8);
    options.found = 0.2;
    const double rate = goodput(options).rate();
    EXPECT_GE(rate, 0.97 * plain_rate(options)) << batch;
    EXPECT_GE(rate, 0.9 * best_fixed_rate(options)) << batch;
  }
}

TEST(Goodput, HoldsWhenCostsDrift) {
  for (const double acceptance : {0.0, 0.6}) {
    WorldOptions options;
    options.step = cpu_step;
    options.acceptance.assign(2, acceptance);
    options.drift = 3;
    const double rate = goodput(options).rate();
    EXPECT_GE(rate, 0.97 * plain_rate(options));
    EXPECT_GE(rate, 0.9 * best_fixed_rate(options));
  }
}

/// What a cost table may get wrong, by rows.
double right(double) { return 1; }
double half_as_much_again(double) { return 1.5; }
double rows_too_cheap(double rows) { return std::pow(rows, -0.1); }  ///< by a third at 64
double rows_too_dear(double rows) { return std::pow(rows, 0.1); }

/// Rollouts one after the other: batches that shrink and texts that grow, which begin anew.
class GoodputInWaves
    : public ::testing::TestWithParam<std::tuple<double, int, double (*)(double)>> {
 protected:
  static WorldOptions world(double acceptance) {
    WorldOptions options;
    options.acceptance.assign(64, acceptance);
    for (int r = 0; r < 64; ++r) options.lengths.push_back(700 + 10 * r);
    options.waves = 6;
    options.steps = 100'000;
    double (*error)(double) = nullptr;
    std::tie(options.per_position, options.burst_every, error) = GetParam();
    options.table_error = error;
    return options;
  }
};

TEST_P(GoodputInWaves, LosesNothingToAModelThatTheCacheHolds) {
  // Rows cost nearly all that a step does: drafts pay in the smallest batches only.
  WorldOptions options = world(0.95);
  options.step = [](double rows) { return 1e-3 * (0.3 + 0.7 * rows / 64); };
  options.round = [](double n) { return 1e-3 * (0.08 + 0.24 * n / 64); };
  options.catch_up = 5e-6;
  for (options.seed = 1; options.seed <= 3; ++options.seed)
    EXPECT_GE(goodput(options).rate(), 0.98 * plain_rate(options));
}

TEST_P(GoodputInWaves, GainsWhereDraftsPay) {
  WorldOptions options = world(0.9);
  options.step = [](double rows) { return 1e-3 * (0.6 + 0.4 * rows / 64); };
  options.round = [](double n) { return 1e-3 * (0.05 + 0.1 * n / 64); };
  options.catch_up = 3e-6;
  std::vector<double> rates;
  for (options.seed = 1; options.seed <= 3; ++options.seed)
    rates.push_back(goodput(options).rate());
  // Lengths are planned by how rows compare: a table that is wrong in that cannot find the best.
  const bool shape = options.table_error(64) == options.table_error(1);
  EXPECT_GE(quantile(rates, 0.5), (shape ? 0.92 : 0.84) * best_fixed_rate(options));
}

INSTANTIATE_TEST_SUITE_P(Worlds, GoodputInWaves,
                         ::testing::Combine(::testing::Values(0.0, 3e-8), ::testing::Values(0, 500),
                                            ::testing::Values(right)));
INSTANTIATE_TEST_SUITE_P(WrongTables, GoodputInWaves,
                         ::testing::Combine(::testing::Values(3e-8), ::testing::Values(500),
                                            ::testing::Values(half_as_much_again, rows_too_cheap,
                                                              rows_too_dear)));

TEST(Goodput, DraftsInStepsThatPrefillWhereThatPays) {
  WorldOptions options;
  options.acceptance.assign(4, 0.8);
  options.prefill_every = 3;
  options.prefill_rows = 32;  // there is room for drafts in what a step costs anyway
  const double rate = goodput(options).rate();
  EXPECT_GE(rate, 0.9 * best_fixed_rate(options));
  options.prefill_every = 2;  // plain steps that would tell most are few, in a long run
  options.steps = 30'000;
  EXPECT_GE(goodput(options).rate(), 0.9 * best_fixed_rate(options));
  options.prefill_rows = 512;  // there is none
  EXPECT_GE(goodput(options).rate(), 0.97 * plain_rate(options));
}

TEST(Goodput, AsksSeldomWhereItNeverPays) {
  WorldOptions options;
  options.step = cpu_step;
  options.round = [](double n) { return 0.3 * cpu_step(n); };
  options.catch_up = 1e-4;
  options.acceptance.assign(32, 0.0);
  const WorldResult result = goodput(options);
  EXPECT_GT(result.asked, 3);
  EXPECT_LT(result.asked, options.steps / 40);
  EXPECT_GT(result.asked_at.back(), options.steps / 2);  // it has not given up for good
}

TEST(Goodput, AsksEvenLessWhereDraftsWouldNotPayIfAllWereAccepted) {
  WorldOptions options;
  options.step = [](double rows) { return 1e-3 * (0.1 + 0.9 * rows / 64); };
  options.round = [](double n) { return 1e-3 * (0.05 + 0.35 * n / 64); };
  options.catch_up = 1e-6;
  options.acceptance.assign(64, 0.95);
  for (int r = 0; r < 64; ++r) options.lengths.push_back(100 + 2 * (r % 16));  // the batch changes
  options.waves = 30;
  const WorldResult result = goodput(options);
  const auto late =
      std::count_if(result.asked_at.begin(), result.asked_at.end(), [](int s) { return s > 1000; });
  EXPECT_GT(late, 3);  // it has not given up for good
  EXPECT_LT(late, 40);
}

TEST(Goodput, TurnsOnSoonAfterTheBatchShrank) {
  WorldOptions options;
  options.step = cpu_step;
  options.round = [](double n) { return 0.1 * cpu_step(n); };
  options.catch_up = 1e-4;
  options.steps = 1100;
  for (int r = 0; r < 64; ++r) {
    options.acceptance.push_back(0.8);
    options.lengths.push_back(r < 62 ? 1000 : 4000);
  }
  const WorldResult result = goodput(options);
  const auto late =
      std::count_if(result.asked_at.begin(), result.asked_at.end(), [](int s) { return s > 1040; });
  EXPECT_GT(late, 40);
}

TEST(Goodput, IsDeterministic) {
  WorldOptions options;
  options.acceptance.assign(8, 0.6);
  options.steps = 500;
  const WorldResult a = goodput(options);
  const WorldResult b = goodput(options);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.asked_at, b.asked_at);
}

// Acceptance, as counted token by token, may promise more than drafts bring. Speculation ends then,
// although each step says the same of acceptance and of costs.
TEST(Goodput, EndsWhereDraftsBringLessThanAcceptancePromises) {
  CostTable costs;
  costs.decode = CostCurve({{1, 1}, {64, 1}});
  costs.drafters.push_back({"lookup", CostCurve({{1, 0.2}, {8, 0.2}}), CostCurve({{1, 0.01}}), {}});
  const std::vector<double> acceptance(8, 0.5);
  const std::vector<int> longest(8, 8);
  DraftQuery query;
  query.requests = 8;
  query.acceptance = acceptance;
  query.longest_draft = longest;
  const auto drafts = [&](int gain) {
    Goodput policy(costs, 8);
    int drafted = 0;
    for (int step = 0; step < 1000; ++step) {
      std::vector<int> lengths(8, 0);
      if (policy.considers(query)) policy.choose(query, lengths);
      StepOutcome outcome;
      outcome.step_seconds = 1;
      outcome.committed = 8;
      const int asked = std::accumulate(lengths.begin(), lengths.end(), 0);
      if (asked > 0) {
        ++drafted;
        std::vector<std::uint8_t> keep(asked);
        std::vector<int> offsets{0};
        std::vector<double> values;
        for (const int length : lengths) {
          for (int k = 0; k < length; ++k) values.push_back(std::pow(0.5, k + 1));
          offsets.push_back(static_cast<int>(values.size()));
        }
        policy.select(query, {values, offsets}, keep);
        outcome.draft_rows = std::accumulate(keep.begin(), keep.end(), 0);
        outcome.draft_seconds = 0.25;
        outcome.accepted = gain;
        outcome.committed += gain;
      }
      policy.observe(outcome);
    }
    return drafted;
  };
  EXPECT_GT(drafts(6), 900) << "as much as it promises, nearly";
  EXPECT_LT(drafts(1), 100) << "a token a step, which costs a quarter of a step";
}

TEST(Goodput, HeedsRoom) {
  CostTable costs;
  costs.decode = CostCurve({{1, 1}, {16, 1}});
  Goodput policy(costs, 8);
  const std::vector<double> acceptance{0.99, 0.99};
  const std::vector<int> longest{0, 2};
  DraftQuery query;
  query.requests = 2;
  query.acceptance = acceptance;
  query.longest_draft = longest;
  std::vector<int> lengths(2, -1);
  int drafted = 0;
  for (int step = 0; step < 100; ++step) {
    std::fill(lengths.begin(), lengths.end(), 0);
    if (policy.considers(query)) policy.choose(query, lengths);
    ASSERT_EQ(lengths[0], 0);
    ASSERT_GE(lengths[1], 0);
    ASSERT_LE(lengths[1], 2);
    StepOutcome outcome;
    outcome.step_seconds = 1;
    outcome.committed = 2;
    if (lengths[1] > 0) {
      ++drafted;
      const std::vector<double> values(lengths[1], 0.99);
      const std::vector<int> offsets{0, 0, lengths[1]};
      std::vector<std::uint8_t> keep(values.size());
      policy.select(query, {values, offsets}, keep);
      outcome.draft_rows = std::accumulate(keep.begin(), keep.end(), 0);
      outcome.committed += outcome.draft_rows;
      outcome.draft_seconds = 0.1;
    }
    policy.observe(outcome);
  }
  EXPECT_GT(drafted, 50);
}

}  // namespace
}  // namespace paceline::policy
