// Groups that join for the last requests.
#include <gtest/gtest.h>

#include "runtime/policy/schedule/growth.hpp"
#include "tests/runtime/policy/lease_next.hpp"

namespace paceline::policy {
namespace {

/// Seconds of a step of so many rows at a degree: the weights are read by all ranks, and a row
/// takes as long at any degree.
CostTable steps(double weights, int tp, double row) {
  CostTable table;
  table.conditions.tp = tp;
  table.decode = CostCurve({{1, weights / tp + row}, {1001, weights / tp + 1001 * row}});
  table.prefill = CostCurve({{1, row}, {1001, 1001 * row}});
  return table;
}

/// Groups of one rank each that hold all requests, of responses up to 1,000 tokens.
struct Growing : ::testing::Test {
  static std::vector<Trajectory> work(std::uint32_t count) {
    std::vector<Trajectory> work(count);
    for (std::uint32_t i = 0; i < count; ++i) work[i].id = {0, i};
    return work;
  }
  void begin(int groups, int requests) {
    table.emplace(work(requests), std::make_unique<FirstCome>(), 0, 1000);
    placement = {.ranks = groups, .groups = {}, .drafters = {}};
    for (int g = 0; g < groups; ++g) placement.groups.push_back({g, 1});
    for (int r = 0; r < requests; ++r) (void)test::lease_next(*table, r % groups);
    options.costs = {{1, steps(10, 1, row)}, {2, steps(10, 2, row)}};
    options.node_of_rank.assign(groups, 0);
    options.max_batch = 1000;
  }
  std::optional<Placement> next() {
    RunState run{{}, *table, prompts, placement};
    for (const GroupRanks& ranks : placement.groups)
      run.groups.push_back({.ranks = ranks, .room = 64, .active = table->held_by(ranks.leader)});
    return grown_placement(run, options);
  }
  double row = 0.1;
  std::optional<RequestTable> table;
  Placement placement;
  std::vector<Prompt> prompts{1};
  GrowthOptions options;
};

TEST_F(Growing, HalfOfThePairsJoinThoseWithTheFewestRequestsFirst) {
  begin(8, 5);  // the groups of 5, 6 and 7 hold nothing
  const std::optional<Placement> made = next();
  ASSERT_TRUE(made);
  EXPECT_EQ(made->epoch, 1U);
  EXPECT_EQ(made->groups,
            (std::vector<GroupRanks>{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 2}, {6, 2}}));
  placement = *made;
  EXPECT_EQ(next()->groups, (std::vector<GroupRanks>{{0, 2}, {2, 1}, {3, 1}, {4, 2}, {6, 2}}));
}

TEST_F(Growing, NoMorePairsJoinThanThereAreRequests) {
  begin(8, 1);
  EXPECT_EQ(next()->groups.size(), 7U);
}

TEST_F(Growing, NothingJoinsWhileStepsHaveManyRequests) {
  row = 1;
  begin(4, 200);  // 10 + 50 seconds for a token of each in small groups, 5 + 100 in large ones
  EXPECT_FALSE(next());
}

TEST_F(Growing, AGroupWithoutANeighbourCountsAtItsDegree) {
  // 18 seconds for a token of each in three groups. In two large ones it would be 17, but one stays
  // small: 19.5, with 145 requests in the large one.
  begin(3, 240);
  EXPECT_FALSE(next());
  begin(3, 30);  // 11, and 8 with all requests in the large one
  EXPECT_EQ(next()->groups, (std::vector<GroupRanks>{{0, 2}, {2, 1}}));
}

TEST_F(Growing, ALargerGroupHoldsNoMoreThanItsBatch) {
  row = 0.2;
  begin(3, 50);  // 13.3 seconds for a token of each, and 12.5 with 37 requests in the large group
  options.max_batch = 40;
  EXPECT_TRUE(next());
  options.max_batch = 25;  // the other 25 take 15
  EXPECT_FALSE(next());
}

TEST_F(Growing, NothingJoinsWhereTheChangeTakesLonger) {
  begin(4, 4);
  options.change_seconds = 1e6;
  EXPECT_FALSE(next());
}

TEST_F(Growing, TheLastPairComputesItsRequestsAgain) {
  begin(2, 2);
  prompts[0].tokens.resize(100);  // 200 positions, 20 seconds
  EXPECT_EQ(next()->groups, (std::vector<GroupRanks>{{0, 2}}));
  prompts[0].tokens.resize(1000000);
  EXPECT_FALSE(next());
}

TEST_F(Growing, GroupsKeepToANode) {
  begin(4, 4);
  options.node_of_rank = {0, 1, 1, 1};
  EXPECT_EQ(next()->groups, (std::vector<GroupRanks>{{0, 1}, {1, 1}, {2, 2}}));
}

TEST_F(Growing, OnlyToDegreesWhoseCostsAreKnown) {
  begin(4, 4);
  options.costs.erase(2);
  EXPECT_FALSE(next());
  options.costs.clear();
  EXPECT_FALSE(next());
}

TEST_F(Growing, NotWhileRequestsWaitOrRolesChange) {
  begin(4, 4);
  table.emplace(work(5), std::make_unique<FirstCome>(), 0, 1000);
  for (int r = 0; r < 4; ++r) (void)test::lease_next(*table, r);
  EXPECT_FALSE(next()) << "one waits";
  (void)test::lease_next(*table, 0);
  EXPECT_TRUE(next());
}

TEST_F(Growing, NothingJoinsWithoutRoomForAllRequests) {
  begin(4, 4);
  prompts[0].tokens.resize(100);
  options.kv_block = 10;
  options.kv_blocks = 150;  // four requests of 100 positions, and at most 500 to come each
  EXPECT_TRUE(next());
  options.kv_blocks = 60;
  EXPECT_FALSE(next());
  options.kv_blocks = 150;
  options.max_batch = 1;
  EXPECT_FALSE(next());
}

TEST_F(Growing, DraftsCount) {
  begin(4, 40);
  ASSERT_TRUE(next());
  // A drafter that takes as long as the requests it drafts for: small groups draft side by side.
  options.mode = SpeculationMode::coupled;
  const CostCurve dear({{1, 0.2}, {1001, 200.2}});
  options.drafter = TailMethod{0, {"model", dear, dear, {}}, 0.95};
  options.longest_draft = 4;
  EXPECT_FALSE(next());
}

}  // namespace
}  // namespace paceline::policy
