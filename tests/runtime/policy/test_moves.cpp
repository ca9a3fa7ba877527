#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/policy/move_split.hpp"
#include "runtime/policy/rebalance.hpp"

namespace paceline::policy {
namespace {

double seconds(const MoveCosts& costs, int positions, int own_from, int first) {
  const int sent = std::max(0, positions - first);
  return std::max((std::min(first, positions) - own_from) * costs.compute,
                  sent > 0 ? costs.latency + sent * costs.transfer : 0.0);
}

TEST(MoveSplit, IsTheBestOfAllSplits) {
  for (const MoveCosts costs : {MoveCosts{1, 1, 0}, MoveCosts{1, 0.1, 5}, MoveCosts{0.1, 1, 0},
                                MoveCosts{1, 1e9, 0}, MoveCosts{1, 0, 100}, MoveCosts{1e6, 1, 3}}) {
    for (const int positions : {1, 15, 16, 17, 100, 1000}) {
      for (const int own_from : {0, 16, 64}) {
        const int first = first_transferred(costs, positions, own_from, 16);
        EXPECT_GE(first, own_from);
        EXPECT_EQ(first % 16, 0);
        for (int other = own_from; other < positions + 16; other += 16) {
          EXPECT_LE(seconds(costs, positions, own_from, first),
                    seconds(costs, positions, own_from, other))
              << positions << " " << own_from << " " << other;
        }
      }
    }
  }
}

TEST(MoveSplit, AllIsSentWhereNobodyKnowsWhatComputingCosts) {
  EXPECT_EQ(first_transferred({0, 1, 1}, 100, 32, 16), 32);
}

TEST(Rebalance, WhoRunsDryGetsHalfOfTheBusiestGroupsYoungest) {
  const std::vector<GroupLoad> groups{{6, 2}, {0, 8}, {3, 5}};
  std::vector<Movable> requests;
  for (std::uint32_t i = 0; i < 6; ++i) requests.push_back({0, 100 - i});
  for (std::uint32_t i = 0; i < 3; ++i) requests.push_back({2, i});
  const std::vector<Transferral> made = rebalance(groups, requests);
  ASSERT_EQ(made.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(made[i].request, 5 - i);
    EXPECT_EQ(made[i].to, 1);
  }
}

TEST(Rebalance, NobodyMovesWhereAllAreBusyOrOneIsLeft) {
  EXPECT_TRUE(
      rebalance(std::vector<GroupLoad>{{6, 2}, {1, 8}}, std::vector<Movable>(6, Movable{0, 1}))
          .empty());
  EXPECT_TRUE(
      rebalance(std::vector<GroupLoad>{{1, 2}, {0, 8}}, std::vector<Movable>{{0, 5}}).empty());
}

TEST(Rebalance, TwoThatRunDryShareAndRoomIsKeptTo) {
  const std::vector<GroupLoad> groups{{8, 0}, {0, 8}, {0, 1}};
  const std::vector<Movable> requests(8, Movable{0, 1});
  int to[3] = {};
  for (const Transferral& t : rebalance(groups, requests)) ++to[t.to];
  EXPECT_EQ(to[1], 4);
  EXPECT_EQ(to[2], 1);
}

}  // namespace
}  // namespace paceline::policy
