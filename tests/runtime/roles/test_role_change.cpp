// What a change of roles asks of the coordinator, step by step.
#include "runtime/roles/role_change.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/policy/lease_next.hpp"

namespace paceline::roles {
namespace {

using policy::Placement;
using policy::RequestMove;
using policy::RequestTable;

/// Groups of one rank at 0 and 1, of two at 2, and a drafter at 4.
Placement before() {
  return {.epoch = 6, .ranks = 6, .groups = {{0, 1}, {1, 1}, {2, 2}}, .drafters = {{4, 3}}};
}
/// The second and third group end; 1 and 2 are spare, 3 and 5 draft, 4 verifies.
Placement after() {
  return {.epoch = 7, .ranks = 6, .groups = {{0, 1}, {4, 1}}, .drafters = {{3, 7}, {5, 7}}};
}

RequestTable table_of(std::vector<int> holders) {
  std::vector<Trajectory> work(holders.size());
  for (std::uint32_t i = 0; i < work.size(); ++i) work[i].id = {0, i};
  RequestTable table = policy::test::first_come(std::move(work));
  for (const int holder : holders) (void)policy::test::lease_next(table, holder);
  return table;
}

TEST(RoleChange, ARequestOfAGroupThatEndsGoesWhereFewestAre) {
  Placement next = before();
  next.groups.pop_back();
  const RoleChange change(before(), next);
  EXPECT_TRUE(change.needed());
  EXPECT_FALSE(change.ends(0));
  EXPECT_TRUE(change.ends(2));
  RequestTable table = table_of({0, 0, 0, 2, 2, 2, 2, 2});
  table.ended({0, 7}, 9);  // it is as good as on disk
  table.move({0, 6}, 1);
  RoleChange::Drain drain = change.drain(table);
  EXPECT_FALSE(drain.done);
  std::vector<int> to;
  for (const RequestMove& move : drain.moves) {
    EXPECT_EQ(table.leased().at(move.id).group, 2);
    to.push_back(move.to);
  }
  // The first group has three, the second gets one: then it gets two more, and the first the last.
  EXPECT_EQ(std::count(to.begin(), to.end(), 1), 2);
  EXPECT_EQ(std::count(to.begin(), to.end(), 0), 1);
  for (const RequestMove& move : drain.moves) {
    table.move(move.id, move.to);
    table.moved(move.id);
  }
  table.moved({0, 6});
  EXPECT_TRUE(change.drain(table).moves.empty());
  EXPECT_FALSE(change.drain(table).done) << "the one that has ended is not on disk";
  table.finished({0, 7}, 2);
  EXPECT_TRUE(change.drain(table).done);
}

TEST(RoleChange, WaitsForWhatIsOnItsWayToAGroupThatEnds) {
  const RoleChange change(before(), after());
  RequestTable table = table_of({0});
  table.move({0, 0}, 2);
  EXPECT_FALSE(change.drain(table).done);
  table.kept({0, 0});
  EXPECT_TRUE(change.drain(table).done);
}

TEST(RoleChange, WhereNoGroupStaysRequestsGoBackToTheTable) {
  Placement next = before();
  next.groups = {{4, 1}};
  next.drafters.clear();
  const RoleChange change(before(), next);
  RequestTable table = table_of({0, 2});
  const RoleChange::Drain drain = change.drain(table);
  ASSERT_EQ(drain.moves.size(), 2U);
  for (const RequestMove& move : drain.moves) {
    EXPECT_EQ(move.to, policy::kToTable);
    table.move(move.id, move.to);
  }
  EXPECT_FALSE(change.drain(table).done) << "they are still there";
}

TEST(RoleChange, TellsWhomItConcernsAndWaitsForAllOfThem) {
  RoleChange change(before(), after());
  EXPECT_FALSE(change.begins(7)) << "nobody was told";
  const std::vector<RoleChange::Telling> tellings = change.tell();
  std::vector<int> told;
  for (const RoleChange::Telling& telling : tellings) {
    told.push_back(telling.rank);
    EXPECT_EQ(telling.placement.epoch, 7U);
    // A verifier that stays hears at first only of the drafters that end.
    EXPECT_EQ(telling.placement.drafters.size(), telling.rank == 0 ? 0U : 2U);
  }
  std::sort(told.begin(), told.end());
  EXPECT_EQ(told, (std::vector<int>{0, 1, 2, 4, 5})) << "3 is told by its leader";
  EXPECT_TRUE(change.begins(7));
  EXPECT_EQ(change.new_groups().size(), 1U);
  EXPECT_EQ(change.new_groups().at(4).ranks, (policy::GroupRanks{4, 1}));
  for (const int rank : {3, 0, 5, 1, 4, 2}) {
    EXPECT_FALSE(change.done());
    EXPECT_TRUE(change.awaits(rank));
    change.took(rank);
    EXPECT_FALSE(change.awaits(rank));
  }
  EXPECT_TRUE(change.done());
}

TEST(RoleChange, OfTheSamePlacesThereIsNothingToDo) {
  Placement next = before();
  ++next.epoch;
  EXPECT_FALSE(RoleChange(before(), next).needed());
}

}  // namespace
}  // namespace paceline::roles
