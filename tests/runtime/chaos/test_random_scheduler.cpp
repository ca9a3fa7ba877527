// Chance must meet all that can be, and nothing that cannot.
#include "runtime/chaos/random_scheduler.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "runtime/chaos/random_draft_memory.hpp"
#include "runtime/policy/schedule/balancing_scheduler.hpp"
#include "tests/runtime/policy/lease_next.hpp"

namespace paceline::chaos {

using namespace policy;

namespace {

/// Two groups and a drafter rank; the first group holds three requests of four.
struct Chances : ::testing::Test {
  Chances() {
    for (const int group : {0, 0, 0, 4}) (void)policy::test::lease_next(table, group);
  }
  RandomScheduler scheduler(const Chance& chance) {
    return {std::make_unique<BalancingScheduler>(BalancingOptions{}), placement, chance};
  }
  static std::vector<Trajectory> work() {
    std::vector<Trajectory> work(4);
    for (std::uint32_t i = 0; i < 4; ++i) work[i].id = {0, i};
    return work;
  }
  Placement placement{.epoch = 3, .ranks = 8, .groups = {{0, 4}, {4, 2}}, .drafters = {{7, 2}}};
  RequestTable table = policy::test::first_come(work());
  std::vector<Prompt> prompts{1};
  RunState run{{{placement.groups[0], 4, 100, 3}, {placement.groups[1], 4, 100, 1}},
               table,
               prompts,
               placement};
};

TEST_F(Chances, MoveAnyRequestToAnyOtherGroupButNoneThatMoves) {
  table.move({0, 2}, 4);
  RandomScheduler random = scheduler({.moves = true, .seed = 11});
  std::set<RequestId> met;
  for (int i = 0; i < 200; ++i) {
    for (const RequestMove& move : random.moves(run)) {
      EXPECT_EQ(move.to, table.leased().at(move.id).group == 0 ? 4 : 0);
      met.insert(move.id);
    }
  }
  EXPECT_EQ(met, (std::set<RequestId>{{0, 0}, {0, 1}, {0, 3}}));
  table.kept({0, 2});
}

TEST_F(Chances, LetARequestThatMovesWithoutGrowingRestUntilItGrows) {
  RandomScheduler random = scheduler({.moves = true, .seed = 11});
  const auto moves = [&] {
    std::size_t made = 0;
    for (int i = 0; i < 2000; ++i) made += random.moves(run).size();
    return made;
  };
  const std::size_t until_rest = moves();
  EXPECT_GT(until_rest, 0U);
  EXPECT_EQ(moves(), 0U);
  const RequestId id{0, 0};
  table.grew(std::array{RequestLength{id, table.leased().at(id).tokens + 1}});
  EXPECT_EQ(moves(), until_rest / (table.leased().size() - table.moves().size()));
}

TEST_F(Chances, LeaveTheRestToTheOtherScheduler) {
  RandomScheduler roles = scheduler({.roles = true, .seed = 11});
  EXPECT_TRUE(roles.moves(run).empty()) << "no group has run dry";
  run.groups[1].active = 0;
  table.finished({0, 3}, 4);
  EXPECT_EQ(roles.moves(run).size(), 1U) << "one of three, as they end sooner";
  RandomScheduler moves = scheduler({.moves = true, .seed = 11});
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(moves.placement(run)) << "roles stay";
  EXPECT_EQ(moves.lease(run, run.groups[0]), BalancingScheduler({}).lease(run, run.groups[0]));
}

TEST_F(Chances, ChangeRolesWithSomeWorkInBetween) {
  RandomScheduler random = scheduler({.roles = true, .seed = 11});
  for (int change = 0; change < 20; ++change) {
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(random.placement(run));
    std::optional<Placement> next;
    for (int i = 0; i < 100 && (!next || next->epoch == placement.epoch); ++i)
      next = random.placement(run);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->epoch, placement.epoch + 1);
    for (const GroupRanks& group : next->groups) EXPECT_TRUE(group.tp == 4 || group.tp == 2);
    placement = *next;
  }
}

TEST(Shuffled, PlacementsAreSoundAndMeetAllThatCanBe) {
  const std::vector<int> degrees = {1, 2, 4};
  const Placement first{.epoch = 3, .ranks = 8, .groups = {{0, 4}, {4, 2}}, .drafters = {{7, 2}}};
  Placement now = first;
  std::set<Role> seen[8];
  std::set<int> met;
  for (std::uint64_t number = 0; number < 500; ++number) {
    const Placement next = shuffled(now, degrees, true, number);
    ASSERT_FALSE(next.groups.empty());
    if (next.epoch == now.epoch) continue;  // chance left no group: nothing changes
    std::vector<int> owners(8, 0);
    for (const GroupRanks& g : next.groups) {
      EXPECT_EQ(g.leader % g.tp, 0);
      met.insert(g.tp);
      for (int rank = g.leader; rank < g.leader + g.tp; ++rank) ++owners.at(rank);
    }
    for (const DrafterPlace& d : next.drafters) {
      ++owners.at(d.rank);
      const bool was = now.role(d.rank) == Role::drafter;
      EXPECT_EQ(was, d.since != next.epoch) << "a drafter that stays is the same one";
    }
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_LE(owners[rank], 1);
      seen[rank].insert(next.role(rank));
    }
    now = next;
  }
  EXPECT_EQ(met, (std::set<int>{1, 2, 4}));
  for (int rank = 1; rank < 8; ++rank) EXPECT_GE(seen[rank].size(), 3U) << rank;
}

TEST(Shuffled, NobodyBeginsToDraftWhereNobodyIsTo) {
  const std::vector<int> degrees = {1, 2};
  const Placement now{.epoch = 3, .ranks = 8, .groups = {{0, 4}}, .drafters = {{5, 2}, {7, 0}}};
  std::set<std::size_t> left;
  for (std::uint64_t number = 0; number < 500; ++number) {
    const Placement next = shuffled(now, degrees, false, number);
    for (const DrafterPlace& d : next.drafters)
      EXPECT_TRUE(d == now.drafters[0] || d == now.drafters[1]) << d.rank << " since " << d.since;
    left.insert(next.drafters.size());
  }
  EXPECT_EQ(left, (std::set<std::size_t>{0, 1, 2})) << "those that draft may go on or end";
}

TEST(Shuffled, RanksDraftForGroupsThatThereAre) {
  const std::vector<int> degrees = {1, 2};
  const std::vector<int> methods = {1, 3};
  Placement now{.epoch = 3, .ranks = 6, .groups = {{0, 2}, {2, 2}}, .drafters = {}};
  std::set<std::int32_t> met;
  for (std::uint64_t number = 0; number < 300; ++number) {
    const Placement next = shuffled(now, degrees, false, number, methods);
    for (const DrafterPlace& d : next.drafters) {
      EXPECT_NE(d.rank, 0);
      EXPECT_TRUE(next.group(*d.group) >= 0 &&
                  next.groups[next.group(*d.group)].leader == *d.group);
      const DrafterPlace* was = now.drafter(d.rank);
      const bool same = was != nullptr && was->method == d.method && was->group == d.group;
      EXPECT_EQ(same, d.since != next.epoch || next.epoch == now.epoch);
      met.insert(*d.method);
    }
    now = next;
  }
  EXPECT_EQ(met, (std::set<std::int32_t>{1, 3}));
}

TEST(RandomDraftMemory, ChangesOftenAndTheSameForASeed) {
  RandomDraftMemory one(7);
  RandomDraftMemory other(7);
  int changes = 0;
  for (int step = 0; step < 1000; ++step) {
    DraftMemoryState s;
    s.expanded = step % 2 == 1;
    const DraftMemoryChange change = one.decide(s);
    EXPECT_EQ(change, other.decide(s));
    EXPECT_NE(change, s.expanded ? DraftMemoryChange::expand : DraftMemoryChange::contract);
    changes += change == DraftMemoryChange::none ? 0 : 1;
  }
  EXPECT_GT(changes, 50);
}

}  // namespace
}  // namespace paceline::chaos
