// When freed groups race for the last requests, and for which.
#include "runtime/policy/schedule/racing.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/policy/schedule/balancing_scheduler.hpp"
#include "tests/runtime/policy/lease_next.hpp"

namespace paceline::policy {
namespace {

using Orders = std::vector<RaceOrder>;

/// Four groups; the first holds three requests that were drafted for by methods 0, 0 and 1, the
/// second one that nothing was drafted for yet; the others have run dry.
struct Tail : ::testing::Test {
  Tail() {
    for (const int group : {0, 0, 0, 1}) (void)test::lease_next(table, group);
    table.drafted({0, 0}, 0, 0.8);
    table.drafted({0, 1}, 0, 0.3);
    table.drafted({0, 2}, 1, 0.5);
    for (int group = 0; group < 4; ++group)
      run.groups.push_back({placement.groups[group], 4, group == 0 ? 3 : group == 1 ? 1 : 0});
  }
  static std::vector<Trajectory> work() {
    std::vector<Trajectory> work(4);
    for (std::uint32_t i = 0; i < 4; ++i) work[i].id = {0, i};
    return work;
  }
  [[nodiscard]] Orders due(const RacingOptions& options = {2, 8}) const {
    return races_due(run, options);
  }
  /// As if the coordinator had sent for them, and they had begun.
  void begin(const Orders& orders) {
    for (const RaceOrder& o : orders) table.race_began(table.race({o.id, o.group, o.method}));
  }
  Placement placement{.ranks = 4, .groups = {{0, 1}, {1, 1}, {2, 1}, {3, 1}}, .drafters = {}};
  RequestTable table = test::first_come(work());
  std::vector<Prompt> prompts{1};
  RunState run{{}, table, prompts, placement};
};

TEST_F(Tail, EveryRequestGetsAllMethodsThatItHasNot) {
  const Orders orders = due();
  fmt::print("request  by now  acceptance  raced by\n");
  for (const auto& [id, request] : table.leased()) {
    fmt::print("{:>7}  {:>6}  {:>10}", id.sample, *request.method, request.acceptance);
    for (const RaceOrder& o : orders) {
      if (o.id == id) fmt::print("  group {} with method {}", o.group, o.method);
    }
    fmt::print("\n");
  }
  // Group 2 takes method 0 and group 3 method 1, lowest acceptance first.
  EXPECT_EQ(
      orders,
      (Orders{{{0, 3}, 2, 0}, {{0, 3}, 3, 1}, {{0, 1}, 3, 1}, {{0, 2}, 2, 0}, {{0, 0}, 3, 1}}));
  begin(orders);
  EXPECT_TRUE(due().empty()) << "all have all";
}

TEST_F(Tail, RacersTakeNoMoreThanTheirBatch) {
  const Orders orders = due({2, 1});
  EXPECT_EQ(orders, (Orders{{{0, 3}, 2, 0}, {{0, 3}, 3, 1}}));
  begin(orders);
  EXPECT_TRUE(due({2, 1}).empty());
  table.race_ended(table.races().begin()->first);
  EXPECT_EQ(due({2, 1}), (Orders{{{0, 2}, 2, 0}})) << "has room again, and another request's turn";
}

TEST_F(Tail, NobodyRacesWhileThereIsOtherWork) {
  EXPECT_TRUE(due({0, 8}).empty()) << "no methods";
  table.move({0, 0}, 3);
  for (const RaceOrder& o : due()) {
    EXPECT_EQ(o.group, 2) << "group 3 is to get a request";
    EXPECT_NE(o.id, (RequestId{0, 0})) << "it moves";
  }
  table.moved({0, 0});
  for (const RaceOrder& o : due()) EXPECT_EQ(o.group, 2) << "group 3 has one";
  table.ended({0, 1}, 10);
  for (const RaceOrder& o : due()) EXPECT_NE(o.id, (RequestId{0, 1})) << "it has ended";
  run.groups[2].active = 1;
  EXPECT_TRUE(due().empty()) << "nobody has run dry";
}

TEST_F(Tail, NobodyRacesWhileRequestsWait) {
  table.returned({}, {.key = table.move({0, 0}, kToTable)});
  EXPECT_TRUE(due().empty());
}

TEST_F(Tail, AGroupThatGotRequestsOfItsOwnIsGivenNoFurtherRaces) {
  begin(due({2, 1}));
  run.groups[2].active = 1;
  run.groups[3].active = 1;
  table.race_ended(table.races().begin()->first);
  EXPECT_TRUE(due({2, 8}).empty());
}

TEST_F(Tail, TheRunsSchedulerLetsThemRace) {
  BalancingScheduler racing({.rebalance = false, .racing = {2, 8}});
  EXPECT_TRUE(racing.moves(run).empty());
  EXPECT_EQ(racing.races(run), due());
  EXPECT_TRUE(racing.moves(run).empty());
  EXPECT_TRUE(racing.races(run).empty()) << "one more report seldom changes anything";
  BalancingScheduler plain({.rebalance = false});
  EXPECT_TRUE(plain.moves(run).empty());
  EXPECT_TRUE(plain.races(run).empty());
}

TEST_F(Tail, TheTableKnowsWhoRaces) {
  const std::uint64_t key = table.race({{0, 0}, 2, 1});
  EXPECT_FALSE(table.races().at(key).running);
  EXPECT_EQ(table.races_begun(), 0U);
  table.race_began(key);
  EXPECT_EQ(table.races_begun(), 1U);
  table.race_ended(key);
  EXPECT_THROW(table.race_ended(key), std::logic_error);
  EXPECT_THROW(table.race_began(key), std::logic_error);
  (void)table.race({{0, 1}, 2, 1});
  table.group_ended(2);
  EXPECT_TRUE(table.races().empty());
  (void)table.move({0, 0}, 3);
  EXPECT_THROW((void)table.race({{0, 0}, 2, 1}), std::logic_error);
}

}  // namespace
}  // namespace paceline::policy
