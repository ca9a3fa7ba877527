// Nightjar's bandit: Algorithm 1's schedule, equation 3 and the switching cost by hand; its regret.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "runtime/policy/length/baselines.hpp"

namespace paceline::policy {
namespace {

TEST(BinSchedule, IsThatOfAlgorithm1) {
  BinSchedule schedule;
  std::vector<std::tuple<int, int, int>> steps;  // block, bin, round
  for (int t = 1; t <= 10; ++t) {
    steps.emplace_back(schedule.block(), schedule.bin(), schedule.round());
    schedule.advance();
  }
  const std::vector<std::tuple<int, int, int>> by_hand{
      {1, 1, 1},                                   // H = 1
      {2, 1, 1},                                   // H = 2, of which the root is 1.4
      {3, 1, 1}, {3, 1, 2}, {3, 2, 1}, {3, 2, 2},  // H = 4
      {4, 1, 1}, {4, 1, 2}, {4, 2, 1}, {4, 2, 2},  // H = 8, of which it is 2.8
  };
  EXPECT_EQ(steps, by_hand);
}

TEST(BinSchedule, BlocksBeginWhereTheyDoByHand) {
  BinSchedule schedule;
  std::vector<int> blocks;
  std::vector<int> bins_of_16;  // where the block with H = 16 has its bins
  for (int t = 1; t <= 200; ++t) {
    if (schedule.begins_bin() && schedule.bin() == 1) blocks.push_back(t);
    if (schedule.begins_bin() && schedule.duration() == 16) bins_of_16.push_back(t);
    schedule.advance();
  }
  EXPECT_EQ(blocks, (std::vector<int>{1, 2, 3, 7, 11, 27, 52, 116}));
  EXPECT_EQ(bins_of_16, (std::vector<int>{11, 15, 19, 23}));
}

TEST(BinSchedule, ExploresByTheRootOfTheBin) {
  BinSchedule schedule;
  EXPECT_EQ(schedule.exploration(), 1);
  while (schedule.bin() != 4) schedule.advance();
  EXPECT_EQ(schedule.exploration(), 0.5);
}

/// Lemma 2 has the root of T for all exploration. A block of H has root(H) bins of root(H) rounds,
/// of which bin b explores with probability 1 / root(b): 2 H^(3/4) steps.
TEST(BinSchedule, ExploresThreeQuartersPower) {
  BinSchedule schedule;
  while (schedule.duration() < 1 << 16) schedule.advance();
  double steps = 0;
  for (; schedule.duration() == 1 << 16; schedule.advance()) steps += schedule.exploration();
  EXPECT_NEAR(steps, 2 * std::pow(1 << 16, 0.75), 0.05 * steps);
}

TEST(SeededDraws, AreUniformAndOfTheSeed) {
  SeededDraws draws(3);
  double sum = 0;
  std::vector<int> counts(5);
  for (int i = 0; i < 10'000; ++i) {
    sum += draws.uniform();
    ++counts[draws.below(5)];
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.015);  // 5 deviations
  for (const int count : counts) EXPECT_NEAR(count, 2000, 200);
  SeededDraws again(3);
  SeededDraws other(4);
  SeededDraws first(3);
  EXPECT_EQ(again.uniform(), first.uniform());
  EXPECT_NE(other.uniform(), again.uniform());
}

/// A bandit whose arms pay what is said, and which of its steps explore: told from the schedule and
/// the same draws.
class Arms {
 public:
  /// `goodput`: by requests and length.
  Arms(std::function<double(int, int)> goodput, int max_length, std::uint64_t seed,
       const CostTable& costs = {})
      : goodput_(std::move(goodput)),
        max_length_(max_length),
        policy_(costs, max_length, seed),
        draws_(seed) {}
  /// The same for each batch size; [arms].
  Arms(const std::vector<double>& goodput, std::uint64_t seed, const CostTable& costs = {})
      : Arms([goodput](int, int length) { return goodput[length]; },
             static_cast<int>(goodput.size()) - 1, seed, costs) {}

  /// The length of one step, which is one for all requests. `lag`: [requests], or empty.
  int step(const std::vector<int>& lag, int requests = 1, int prefill_rows = 0) {
    Mirror& mirror = mirrors_[requests];
    if (prefill_rows == 0) {
      if (mirror.schedule.begins_bin())
        mirror.explores = draws_.uniform() < mirror.schedule.exploration();
      if (mirror.explores) draws_.below(max_length_ + 1);
      mirror.schedule.advance();
    }
    explored_ = prefill_rows == 0 && mirror.explores;
    const std::vector<double> acceptance(requests, 0.5);
    const std::vector<int> longest(requests, 100);
    DraftQuery query;
    query.requests = requests;
    query.prefill_rows = prefill_rows;
    query.acceptance = acceptance;
    query.longest_draft = longest;
    query.lag = lag;
    std::vector<int> lengths(requests);
    if (policy_.considers(query)) policy_.choose(query, lengths);
    EXPECT_EQ(std::set<int>(lengths.begin(), lengths.end()).size(), 1U);
    StepOutcome outcome;
    outcome.committed = requests;
    outcome.step_seconds = requests / goodput_(requests, lengths[0]);
    policy_.observe(outcome);
    return lengths[0];
  }
  /// The last step did.
  [[nodiscard]] bool explored() const { return explored_; }

 private:
  struct Mirror {
    BinSchedule schedule;
    bool explores = false;
  };
  std::function<double(int, int)> goodput_;
  int max_length_;
  Nightjar policy_;
  SeededDraws draws_;
  std::map<int, Mirror> mirrors_;  ///< by batch size
  bool explored_ = false;
};

/// 0.1 ms a token, of any number of tokens.
CostTable catching_up() {
  CostTable costs;
  DrafterCosts drafter;
  drafter.catch_up = CostCurve({{1, 1e-4}, {1000, 0.1}});
  costs.drafters.push_back(drafter);
  return costs;
}

/// Lengths that are exploited right after plain steps, and after others, once all arms are known.
struct Exploited {
  std::set<int> after_plain, after_drafts;
};
Exploited exploited(const std::vector<double>& goodput, const std::vector<int>& lag) {
  Arms arms(goodput, 7, catching_up());
  Exploited seen;
  int last = 0;
  for (int t = 0; t < 5000; ++t) {
    const int length = arms.step(lag, static_cast<int>(std::max<std::size_t>(1, lag.size())));
    if (t >= 500 && !arms.explored())
      (last == 0 ? seen.after_plain : seen.after_drafts).insert(length);
    last = length;
  }
  return seen;
}

TEST(Nightjar, Equation3ByHand) {
  // ms a token: 10, 8.33, 6.667, 6.711.
  const std::vector<double> goodput{100, 120, 150, 149};
  const std::set<int> two{2};
  EXPECT_EQ(exploited(goodput, {0}).after_plain, two);
  // 1 ms: 10, 9.33, 7.167, 7.045.
  EXPECT_EQ(exploited(goodput, {10}).after_plain, std::set<int>{3});
  EXPECT_EQ(exploited(goodput, {10}).after_drafts, two) << "only switching costs";
  // 10 ms: 10, 18.3, 11.67, 10.045.
  EXPECT_EQ(exploited(goodput, {100}).after_plain, std::set<int>{0});
  EXPECT_EQ(exploited(goodput, {100}).after_drafts, two);
  EXPECT_EQ(exploited({100, 90, 80, 70}, {0}).after_drafts, std::set<int>{0});
}

TEST(Nightjar, SwitchingCostsTheBatchByItsLargestLag) {
  // Four requests: 4 L_max tokens. Length 3 stays worth it up to 9.87 ms, which is 24.7 tokens.
  const std::vector<double> goodput{100, 120, 150, 149};
  EXPECT_EQ(exploited(goodput, {0, 24, 1, 0}).after_plain, std::set<int>{3});
  EXPECT_EQ(exploited(goodput, {24, 24, 24, 24}).after_plain, std::set<int>{3});
  EXPECT_EQ(exploited(goodput, {0, 25, 1, 0}).after_plain, std::set<int>{0});
}

TEST(Nightjar, PlaysTheIncrementalMean) {
  // One arm pays 100 and 300 in turn, whose mean is that of 200; the other always 150.
  const std::vector<double> pays{100, 300};
  MeanGoodput mean;
  for (int i = 0; i < 4; ++i) {
    mean.record({0, 100, 0.5 * 100 / pays[i % 2], 0.5 * 100 / pays[i % 2]});
    if (i == 0) {
      EXPECT_EQ(mean.value(), 100);
    }
  }
  EXPECT_DOUBLE_EQ(mean.value(), 200);
  EXPECT_EQ(mean.visits(), 4);
  mean.record({});
  EXPECT_EQ(mean.visits(), 4) << "no time has passed";
}

TEST(Nightjar, ExploresAllLengthsAlike) {
  Arms arms({200, 100, 100, 100, 100}, 1);
  std::vector<int> counts(5);
  int explored = 0;
  double expected = 0;  // steps of exploration
  BinSchedule schedule;
  for (int t = 0; t < 40'000; ++t) {
    expected += schedule.exploration();
    schedule.advance();
    const int length = arms.step({});
    if (arms.explored()) {
      ++explored;
      ++counts[length];
    } else {
      EXPECT_EQ(length, 0);
    }
  }
  // Bins of up to 90 steps are drawn at once, so that the sum's deviation is some 700.
  EXPECT_NEAR(explored, expected, 2500);
  for (const int count : counts) EXPECT_NEAR(count, explored / 5.0, 5 * std::sqrt(explored / 5.0));
}

TEST(Nightjar, LearnsBatchSizesApart) {
  // Drafts pay for one request, and cost for eight.
  Arms arms([](int requests, int length) { return 100.0 + (requests == 1 ? length : -length); }, 3,
            5);
  std::map<int, std::set<int>> exploited;
  for (int t = 0; t < 4000; ++t) {
    const int requests = t % 3 == 0 ? 1 : 8;
    const int length = arms.step({}, requests);
    if (t >= 1000 && !arms.explored()) exploited[requests].insert(length);
  }
  EXPECT_EQ(exploited[1], std::set<int>{3});
  EXPECT_EQ(exploited[8], std::set<int>{0});
}

TEST(Nightjar, StepsThatComputePromptsAreNoRounds) {
  Arms with({100, 150, 120}, 9);
  Arms without({100, 150, 120}, 9);
  for (int t = 0; t < 500; ++t) {
    with.step({}, 1, 64);
    EXPECT_EQ(with.step({}), without.step({})) << t;
  }
}

TEST(Nightjar, CountsWhatRoomLeavesOfALength) {
  Nightjar policy({}, 4, 2);
  const std::vector<double> acceptance{0.5, 0.5};
  const std::vector<int> longest{0, 0};
  DraftQuery query;
  query.requests = 2;
  query.acceptance = acceptance;
  query.longest_draft = longest;
  std::vector<int> lengths(2);
  for (int t = 0; t < 50; ++t) {  // whatever is tried is a plain step, so no other is ever learned
    if (policy.considers(query)) policy.choose(query, lengths);
    EXPECT_EQ(lengths, (std::vector<int>{0, 0}));
    policy.observe({0, 2, 0, 0.01});
  }
}

}  // namespace
}  // namespace paceline::policy
