#include <gtest/gtest.h>

#include <set>

#include "runtime/policy/leases.hpp"
#include "runtime/policy/placement.hpp"

namespace paceline::policy {
namespace {

Placement example() {
  return {.epoch = 3, .ranks = 8, .groups = {{0, 4}, {4, 2}}, .drafters = {{7, 2}}};
}

TEST(Placement, SaysWhatEveryRankIs) {
  const Placement p = example();
  const Role roles[] = {Role::verifier,        Role::verifier_member, Role::verifier_member,
                        Role::verifier_member, Role::verifier,        Role::verifier_member,
                        Role::spare,           Role::drafter};
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(p.role(rank), roles[rank]) << rank;
  EXPECT_EQ(p.group(3), 0);
  EXPECT_EQ(p.group(5), 1);
  EXPECT_EQ(p.group(6), -1);
  EXPECT_EQ(p.least_tp(), 2);
  EXPECT_EQ(p.degrees(), (std::vector<int>{2, 4}));
}

TEST(Placement, ARankStaysWhereItsRoleAndItsWholeGroupDo) {
  const Placement before = example();
  Placement after = before;
  after.groups = {{0, 2}, {4, 2}};
  for (const int rank : {0, 1, 2, 3}) EXPECT_FALSE(stays(rank, before, after)) << rank;
  for (const int rank : {4, 5, 6, 7}) EXPECT_TRUE(stays(rank, before, after)) << rank;
}

TEST(Placement, AllRequestsOfAPromptHaveOneDrafter) {
  EXPECT_EQ(drafter_for(5, {}), nullptr);
  const std::vector<DrafterPlace> two = {{3, 0}, {7, 2}};
  EXPECT_EQ(drafter_for(4, two)->rank, 3);
  EXPECT_EQ(drafter_for(5, two)->rank, 7);
}

TEST(Placement, ShuffledPlacementsAreSoundAndMeetAllThatCanBe) {
  const std::vector<int> degrees = {1, 2, 4};
  Placement now = example();
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
  EXPECT_TRUE(shuffled(now, degrees, false, 7).drafters.size() <= now.drafters.size());
}

TEST(Leases, FillTheRoomWhileThereIsPlentyAndShareTheEnd) {
  EXPECT_EQ(leases_due({.room = 3, .held = 0, .unfinished = 1000, .share = 0.5}), 3);
  EXPECT_EQ(leases_due({.room = -1, .held = 0, .unfinished = 1000, .share = 0.5}), 0);
  EXPECT_EQ(leases_due({.room = 64, .held = 0, .unfinished = 10, .share = 0.25}), 3);
  EXPECT_EQ(leases_due({.room = 64, .held = 2, .unfinished = 6, .share = 0.5}), 1);
  EXPECT_EQ(leases_due({.room = 64, .held = 4, .unfinished = 6, .share = 0.5}), 0);
  EXPECT_EQ(leases_due({.room = 64, .held = 0, .unfinished = 12, .share = 1.0 / 3}), 4);
}

}  // namespace
}  // namespace paceline::policy
