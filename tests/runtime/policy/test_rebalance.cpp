// Which requests change groups, and what is expected of responses that run.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "runtime/policy/schedule/rebalance.hpp"
#include "runtime/policy/schedule/response_lengths.hpp"

namespace paceline::policy {
namespace {

/// Seconds of a step of so many rows: a + b * rows. KV moves at 1 position a second.
MoveCosts linear(double a, double b, double latency = 0) {
  MoveCosts costs = costs_by_position(1e6, 1);
  costs.table.decode = CostCurve({{1, a + b}, {101, a + 101 * b}});
  costs.table.transfer->latency = latency;
  return costs;
}

Movable with(int group, double remaining, double positions = 0) {
  return {group, positions, remaining, false};
}

int count_to(const std::vector<Transferral>& made, int group) {
  return static_cast<int>(
      std::count_if(made.begin(), made.end(), [&](const auto& t) { return t.to == group; }));
}

TokenSeconds plain(const MoveCosts& costs) {
  return [&costs](double requests, double context) {
    return costs.table.step_seconds({.requests = requests, .context = context});
  };
}

TEST(Drain, FewerAndFewerTakePart) {
  const MoveCosts costs = linear(10, 1);
  const std::vector<Movable> requests{with(0, 5), with(0, 2), with(0, 9)};
  // Two steps of three, three of two, four of one.
  EXPECT_DOUBLE_EQ(drain_seconds(plain(costs), requests), 2 * 13 + 3 * 12 + 4 * 11);
  EXPECT_EQ(drain_seconds(plain(costs), {}), 0);
}

TEST(Drain, ContextGrowsAsItGoes) {
  MoveCosts costs = linear(10, 0);
  costs.table.decode = CostCurve(costs.table.decode.points(), 0.1);
  const std::vector<Movable> requests{with(0, 10, 100)};
  EXPECT_DOUBLE_EQ(drain_seconds(plain(costs), requests), 10 * (10 + 0.1 * 105));
}

TEST(Rebalance, TheGroupThatEndsLastSharesWithTheOneThatRanDry) {
  const MoveCosts costs = linear(0, 1);
  const std::vector<GroupLoad> groups{{2, &costs}, {8, &costs}, {5, &costs}};
  std::vector<Movable> requests(6, with(0, 10));
  requests.insert(requests.end(), 3, with(2, 15));
  const std::vector<Transferral> made = rebalance(groups, requests);
  ASSERT_EQ(made.size(), 3U);
  for (const Transferral& t : made) {
    EXPECT_LT(t.request, 6U);
    EXPECT_EQ(t.to, 1);
  }
}

TEST(Rebalance, ThoseWithMostToComeMove) {
  const std::vector<GroupLoad> groups{{8, nullptr}, {8, nullptr}};
  const std::vector<Movable> requests{with(0, 10), with(0, 12), with(0, 90), with(0, 11)};
  const std::vector<Transferral> made = rebalance(groups, requests);
  ASSERT_EQ(made.size(), 1U);  // 90 steps of one; 10 of three, one of two and one of one
  EXPECT_EQ(made[0].request, 2U);
}

TEST(Rebalance, NobodyMovesWhereItWouldNotEndSooner) {
  const MoveCosts flat = linear(10, 0);
  const MoveCosts slow = linear(0, 1, 1000);
  const std::vector<Movable> requests(6, with(0, 10, 16));
  EXPECT_TRUE(rebalance(std::vector<GroupLoad>{{2, &flat}, {8, &flat}}, requests).empty());
  EXPECT_TRUE(rebalance(std::vector<GroupLoad>{{2, &slow}, {8, &slow}}, requests).empty());
  // Nor a single one, nor to a group that ends as late or has no room.
  const std::vector<GroupLoad> groups{{2, nullptr}, {8, nullptr}};
  EXPECT_TRUE(rebalance(groups, std::vector<Movable>{with(0, 10)}).empty());
  std::vector<Movable> busy = requests;
  busy.insert(busy.end(), 6, with(1, 10, 16));
  EXPECT_TRUE(rebalance(groups, busy).empty());
  EXPECT_TRUE(rebalance(std::vector<GroupLoad>{{2, nullptr}, {0, nullptr}}, requests).empty());
}

TEST(Rebalance, MovesCountByTheirKv) {
  // Six of 100 tokens: three and three would end after 300 s, were they there at once.
  const MoveCosts costs = linear(0, 1);
  const std::vector<GroupLoad> groups{{2, &costs}, {8, &costs}};
  // 2 x 100 positions + 200 s against 400 s; a third would take 300 + 300 s.
  EXPECT_EQ(rebalance(groups, std::vector<Movable>(6, with(0, 100, 100))).size(), 2U);
  EXPECT_EQ(rebalance(groups, std::vector<Movable>(6, with(0, 100, 400))).size(), 1U);
  EXPECT_EQ(rebalance(groups, std::vector<Movable>(6, with(0, 100, 600))).size(), 0U);
}

TEST(Rebalance, AFasterGroupGetsMore) {
  const MoveCosts slow = linear(0, 3);
  const MoveCosts fast = linear(0, 1);
  const std::vector<Movable> requests(8, with(0, 10));
  EXPECT_EQ(rebalance(std::vector<GroupLoad>{{2, &slow}, {8, &fast}}, requests).size(), 6U);
  EXPECT_EQ(rebalance(std::vector<GroupLoad>{{2, &fast}, {8, &slow}}, requests).size(), 2U);
}

TEST(Rebalance, BusyGroupsAdvanceAlike) {
  const MoveCosts small = linear(10, 0.01);
  const MoveCosts large = linear(5, 0.3);
  std::vector<Movable> requests(8, with(0, 100));
  requests.insert(requests.end(), 2, with(1, 100));
  // The large group takes 8 s for a step of all ten, the small one 10 s for a step of one.
  const std::vector<GroupLoad> groups{{8, &small}, {8, &large}};
  const std::vector<Transferral> made = rebalance(groups, requests);
  EXPECT_EQ(count_to(made, 1), 8);
  // Nothing moves where it would save less than a twentieth.
  const MoveCosts slower = linear(9.8, 0);
  EXPECT_TRUE(rebalance(std::vector<GroupLoad>{{8, &small}, {8, &slower}}, requests).empty());
  // Drafted rows count: a step of four requests would take the large group 9.8 s.
  const std::vector<GroupLoad> drafted{{8, &small, 3}, {8, &large, 3}};
  EXPECT_TRUE(rebalance(drafted, requests).empty());
}

TEST(Rebalance, TwoThatRunDryShareAndRoomIsKeptTo) {
  const std::vector<GroupLoad> groups{{0, nullptr}, {8, nullptr}, {1, nullptr}};
  const std::vector<Transferral> made = rebalance(groups, std::vector<Movable>(8, with(0, 10)));
  EXPECT_EQ(count_to(made, 1), 4);
  EXPECT_EQ(count_to(made, 2), 1);
}

TEST(Rebalance, OfWhatAGroupIsToGetAnotherMayGetAShare) {
  const std::vector<GroupLoad> groups(4, {8, nullptr});
  const std::vector<Transferral> made = rebalance(groups, std::vector<Movable>(8, with(0, 10)));
  ASSERT_EQ(made.size(), 6U) << "each request moves once, and goes where it is to end";
  for (const int group : {1, 2, 3}) EXPECT_EQ(count_to(made, group), 2) << group;
  std::vector<bool> moves(8, false);
  for (const Transferral& t : made) {
    EXPECT_FALSE(moves[t.request]);
    moves[t.request] = true;
  }
}

TEST(Rebalance, WhoMovesAlreadyCountsButIsNotMovedAgain) {
  const std::vector<GroupLoad> groups{{8, nullptr}, {8, nullptr}};
  std::vector<Movable> requests(6, with(0, 10));
  requests[5] = {1, 0, 10, true};
  EXPECT_EQ(rebalance(groups, requests).size(), 2U) << "three and three";
  for (Movable& m : requests) m = {0, 0, 10, true};
  EXPECT_TRUE(rebalance(groups, requests).empty());
  requests[2].bound = requests[4].bound = false;
  EXPECT_EQ(rebalance(groups, requests).size(), 2U);
}

/// When the later of two groups ends that share the first one's requests.
double later_end(const MoveCosts& costs, const std::vector<Movable>& requests,
                 const std::vector<bool>& moves) {
  std::vector<Movable> stays;
  std::vector<Movable> goes;
  double seconds = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    (moves[i] ? goes : stays).push_back(requests[i]);
    if (moves[i])
      seconds += split_move(costs, static_cast<int>(requests[i].positions), 0, 16).seconds;
  }
  return std::max(drain_seconds(plain(costs), stays), seconds + drain_seconds(plain(costs), goes));
}

TEST(Rebalance, IsNeverLaterByItsOwnEstimateAndTheBestOfAllNumbersOfMoves) {
  std::mt19937 random(1);
  int moved = 0;
  for (int trial = 0; trial < 500; ++trial) {
    MoveCosts costs = linear(1 + random() % 20, random() % 3, random() % 50);
    costs.table.transfer->bandwidth = 1 << (random() % 12);
    std::vector<Movable> requests;
    for (std::size_t i = 1 + random() % 12; i > 0; --i)
      requests.push_back(with(0, 1 + random() % 300, random() % 1000));
    const int room = static_cast<int>(random() % 14);
    const std::vector<GroupLoad> groups{{4, &costs}, {room, &costs}};
    std::vector<bool> moves(requests.size(), false);
    const double before = later_end(costs, requests, moves);
    const std::vector<Transferral> made = rebalance(groups, requests);
    for (const Transferral& t : made) moves[t.request] = true;
    const double after = later_end(costs, requests, moves);
    EXPECT_LE(static_cast<int>(made.size()), room);
    EXPECT_TRUE(made.empty() ? after == before : after < before);
    moved += made.empty() ? 0 : 1;

    std::vector<std::size_t> order(requests.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return requests[a].remaining > requests[b].remaining;
    });
    moves.assign(requests.size(), false);
    for (int i = 0; i < std::min(room, static_cast<int>(order.size())); ++i) {
      moves[order[i]] = true;
      EXPECT_LE(after, later_end(costs, requests, moves) * (1 + 1e-12));
    }
  }
  EXPECT_GT(moved, 100);
}

TEST(ResponseLengths, HalfOfTheRoomWhereNoneIsKnown) {
  ResponseLengths lengths(1000);
  EXPECT_EQ(lengths.remaining(std::vector<std::uint32_t>{0, 600}), (std::vector<double>{500, 200}));
  lengths.ended(300);  // 300 tokens of the other are known, and no end: half of the room is less
  EXPECT_EQ(lengths.remaining(std::vector<std::uint32_t>{600}), std::vector<double>{200});
}

TEST(ResponseLengths, ThoseAheadOfAllThatEndedAreNotTakenForTheLongestPossible) {
  ResponseLengths lengths(100'000);
  for (int i = 0; i < 100; ++i) lengths.ended(1000);
  // One end among six that came so far: 200 and 3 x 100 tokens further.
  lengths.ended(2000);
  const std::vector<double> more = lengths.remaining(std::vector<std::uint32_t>{2400, 2400, 1200});
  EXPECT_LT(more[0], 1200) << "half of the room is 48,800";
  EXPECT_GT(more[0], 400);
}

TEST(ResponseLengths, TokensOfAllForEachThatEnded) {
  ResponseLengths lengths(256);  // ranges of one token
  lengths.ended(100);
  lengths.ended(140);
  lengths.ended(10);
  lengths.ended(10);
  const std::vector<double> more = lengths.remaining(std::vector<std::uint32_t>{0, 120, 130, 200});
  ASSERT_EQ(more.size(), 4U);
  EXPECT_DOUBLE_EQ(more[0], (100 + 140 + 10 + 10 + 120 + 130 + 200) / 4.0);
  EXPECT_DOUBLE_EQ(more[1], 20 + 10 + 80);
  EXPECT_DOUBLE_EQ(more[2], 10 + 70);
  EXPECT_DOUBLE_EQ(more[3], 28);
}

TEST(ResponseLengths, NeverMoreThanTheRoom) {
  ResponseLengths lengths(1000);
  lengths.ended(950);
  const std::vector<std::uint32_t> running(50, 940);
  EXPECT_LE(lengths.remaining(running)[0], 60);
  EXPECT_EQ(lengths.remaining(std::vector<std::uint32_t>{1000, 1200}), (std::vector<double>{0, 0}));
}

TEST(ResponseLengths, ThoseOfOneLengthAreKnownToBeNearlyOver) {
  ResponseLengths lengths(1024);
  for (int i = 0; i < 8; ++i) lengths.ended(200);
  EXPECT_LT(lengths.remaining(std::vector<std::uint32_t>(8, 198))[0], 10);
}

/// Groups that decode side by side, their responses as long as chance will have it; those that run
/// dry get what the policy says. Returns when the last has ended.
class World {
 public:
  World(const MoveCosts& costs, unsigned seed, bool skewed) : costs_(costs), random_(seed) {
    std::lognormal_distribution<double> of_prompt(0, 0.8);
    std::lognormal_distribution<double> of_sample(0, 0.4);
    for (int g = 0; g < kGroups; ++g) {
      for (int prompt = 0; prompt < 4; ++prompt) {
        const double mean = skewed && g > 0 ? 30 : 150 * of_prompt(random_);
        for (int sample = 0; sample < 4; ++sample) {
          const auto length = static_cast<int>(mean * of_sample(random_));
          responses_.push_back({g, 0, std::clamp(length, 1, kLongest), 0});
        }
      }
    }
  }

  double run(bool rebalances) {
    while (const std::optional<int> group = next()) {
      if (step(*group) && rebalances) move_some(clock_[*group]);
    }
    return *std::max_element(clock_.begin(), clock_.end());
  }

 private:
  static constexpr int kGroups = 3;
  static constexpr int kLongest = 600;
  struct Response {
    int group;
    int tokens;
    int length;
    double there;  ///< second from which on its KV is
    [[nodiscard]] bool runs() const { return tokens < length; }
  };

  /// The group whose next step begins first.
  std::optional<int> next() {
    std::optional<int> first;
    for (int g = 0; g < kGroups; ++g) {
      double there = 1e300;
      for (const Response& r : responses_) {
        if (r.runs() && r.group == g) there = std::min(there, r.there);
      }
      if (there == 1e300) continue;
      clock_[g] = std::max(clock_[g], there);
      if (!first || clock_[g] < clock_[*first]) first = g;
    }
    return first;
  }
  /// Whether a response ended.
  bool step(int group) {
    StepShape shape;
    std::vector<Response*> batch;
    for (Response& r : responses_) {
      if (!r.runs() || r.group != group || r.there > clock_[group]) continue;
      batch.push_back(&r);
      shape.context += r.tokens;
    }
    shape.requests = static_cast<double>(batch.size());
    shape.context /= shape.requests;
    clock_[group] += costs_.table.step_seconds(shape);
    bool ended = false;
    for (Response* r : batch) {
      ++r->tokens;
      if (r->runs()) continue;
      ended = true;
      lengths_.ended(static_cast<std::uint32_t>(r->length));
    }
    return ended;
  }
  void move_some(double now) {
    const std::vector<GroupLoad> loads(kGroups, {16, &costs_});
    std::vector<Movable> requests;
    std::vector<Response*> of;
    std::vector<std::uint32_t> tokens;
    for (Response& r : responses_) {
      if (!r.runs()) continue;
      of.push_back(&r);
      tokens.push_back(static_cast<std::uint32_t>(r.tokens));
      requests.push_back({r.group, static_cast<double>(r.tokens), 0, r.there > now});
    }
    const std::vector<double> remaining = lengths_.remaining(tokens);
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i].remaining = remaining[i];
    for (const Transferral& t : rebalance(loads, requests)) {
      Response& r = *of[t.request];
      r.group = t.to;
      clock_[t.to] = std::max(clock_[t.to], now);
      r.there = std::max(now, last_arrival_[t.to]) + split_move(costs_, r.tokens, 0, 16).seconds;
      last_arrival_[t.to] = r.there;
    }
  }

  MoveCosts costs_;
  std::mt19937 random_;
  std::vector<Response> responses_;
  ResponseLengths lengths_{kLongest};
  std::vector<double> clock_ = std::vector<double>(kGroups, 0);
  std::vector<double> last_arrival_ = std::vector<double>(kGroups, 0);
};

/// With rebalancing over without: the mean and the worst of many runs.
struct Ratios {
  double mean = 0, worst = 0;
};
Ratios simulate(const MoveCosts& costs, bool skewed) {
  constexpr int kRuns = 30;
  Ratios ratios;
  for (unsigned seed = 0; seed < kRuns; ++seed) {
    const double without = World(costs, seed, skewed).run(false);
    const double ratio = World(costs, seed, skewed).run(true) / without;
    ratios.mean += ratio / kRuns;
    ratios.worst = std::max(ratios.worst, ratio);
  }
  return ratios;
}

MoveCosts on_one_node(double step, double row, double bandwidth) {
  MoveCosts costs;
  costs.table.decode = CostCurve({{1, step + row}, {16, step + 16 * row}}, row * 1e-4);
  costs.table.prefill = CostCurve({{16, step + 8 * row}, {256, step + 128 * row}}, row * 1e-4);
  costs.table.transfer = TransferCosts{1e-4, bandwidth};
  costs.position_bytes = 3072;
  return costs;
}

TEST(Rebalance, SimulatedRunsEndSooner) {
  const MoveCosts costs = on_one_node(2e-4, 1.2e-4, 4e9);
  const Ratios skewed = simulate(costs, true);
  EXPECT_LT(skewed.mean, 0.7);
  EXPECT_LT(skewed.worst, 1);
  const Ratios mixed = simulate(costs, false);
  EXPECT_LT(mixed.mean, 0.9);
  EXPECT_LT(mixed.worst, 1.02);
}

TEST(Rebalance, SimulatedRunsAreNotHeldUpWhereStepsAreFlatOrMovesDear) {
  for (const bool skewed : {true, false}) {
    EXPECT_DOUBLE_EQ(simulate(on_one_node(20e-3, 0, 1e9), skewed).worst, 1);
    const Ratios dear = simulate(on_one_node(2e-4, 1.2e-4, 1e6), skewed);
    EXPECT_LT(dear.mean, 1);
    EXPECT_LT(dear.worst, 1.1);
  }
}

}  // namespace
}  // namespace paceline::policy
