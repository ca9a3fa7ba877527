#include "runtime/policy/schedule/request_table.hpp"

#include <gtest/gtest.h>
#include <array>

#include <random>
#include <stdexcept>

#include "tests/runtime/policy/lease_next.hpp"

namespace paceline::policy {
namespace {

using test::first_come;
using test::lease_next;

constexpr RequestId id(std::uint32_t sample) { return {0, sample}; }

RequestTable table_of(std::uint32_t requests, std::size_t finished_before = 0) {
  std::vector<Trajectory> work(requests);
  for (std::uint32_t i = 0; i < requests; ++i) work[i].id = id(i);
  return first_come(std::move(work), finished_before);
}

/// Leases so many requests to the group.
void lease(RequestTable& table, int group, int count) {
  for (; count > 0; --count) (void)lease_next(table, group);
}

TEST(RequestTable, LeasesInTheOrderOfTheWork) {
  std::vector<Trajectory> work(2);
  work[0].id = {4, 1};
  work[0].tokens = {7, 8, 9};
  work[1].id = {2, 0};
  RequestTable table = first_come(std::move(work), 5);
  EXPECT_EQ(table.total(), 7U);
  EXPECT_EQ(table.waiting().size(), 2U);
  const RequestTable::Leased first = lease_next(table, 3);
  EXPECT_EQ(first.request.trajectory.id, (RequestId{4, 1}));
  EXPECT_EQ(table.leased().at({4, 1}).group, 3);
  EXPECT_EQ(table.leased().at({4, 1}).tokens, 3U) << "of an earlier attempt";
  const RequestTable::Leased second = lease_next(table, 0);
  EXPECT_EQ(second.request.trajectory.id, (RequestId{2, 0}));
  EXPECT_GT(second.version, first.version);
  EXPECT_EQ(table.held_by(3), 1);
  EXPECT_EQ(table.held_by(0), 1);
  EXPECT_EQ(table.held_by(1), 0);
  EXPECT_THROW((void)lease_next(table, 0), std::logic_error);
}

TEST(RequestTable, RequestsJoinAndLeaveWhileOthersAreLeased) {
  RequestTable table = table_of(1);
  lease(table, 0, 1);
  for (std::uint32_t i = 1; i < 4; ++i) {
    Trajectory further;
    further.id = id(i);
    table.add(std::move(further));
  }
  EXPECT_EQ(table.total(), 4U);
  table.withdraw(id(1));
  EXPECT_EQ(table.total(), 3U);
  EXPECT_THROW(table.withdraw(id(1)), std::logic_error) << "it is not there";
  EXPECT_THROW(table.withdraw(id(0)), std::logic_error) << "it is leased";
  EXPECT_EQ(lease_next(table, 0).request.trajectory.id, id(2));
  EXPECT_EQ(table.waiting().size(), 1U);
}

TEST(RequestTable, AMovingRequestIsHeldWhereItWasUntilItIsThere) {
  RequestTable table = table_of(2);
  lease(table, 0, 2);
  const std::uint64_t key = table.move(id(1), 4);
  EXPECT_EQ(table.held_by(0), 2);
  EXPECT_EQ(table.moves().at(id(1)), 4);
  EXPECT_THROW(table.move(id(1), 8), std::logic_error) << "it is on a move";
  table.moved(id(1));
  EXPECT_EQ(table.held_by(0), 1);
  EXPECT_EQ(table.held_by(4), 1);
  EXPECT_EQ(table.leased().at(id(1)).group, 4);
  EXPECT_TRUE(table.moves().empty());
  EXPECT_EQ(table.moves_made(), 1U);
  EXPECT_THROW(table.moved(id(1)), std::logic_error) << "made twice";
  EXPECT_GT(table.move(id(1), 0), key) << "it may move on";
}

TEST(RequestTable, AMoveThatCameTooLateIsForgotten) {
  RequestTable table = table_of(2);
  lease(table, 0, 2);
  table.move(id(0), 4);
  table.move(id(1), 4);
  table.ended(id(0), 9);
  table.kept(id(0));
  EXPECT_FALSE(table.moves().contains(id(0)));
  EXPECT_EQ(table.held_by(0), 2);
  table.finished(id(1), 0);  // and is on disk before its group hears of the move
  EXPECT_EQ(table.moves().size(), 1U);
  table.kept(id(1));
  EXPECT_TRUE(table.moves().empty());
  EXPECT_EQ(table.moves_made(), 0U);
}

TEST(RequestTable, WhatIsGivenBackIsLeasedFirstWithWhatItHas) {
  RequestTable table = table_of(4);
  lease(table, 0, 2);
  const std::uint64_t key = table.move(id(1), kToTable);
  Trajectory partial;
  partial.id = id(1);
  partial.tokens = {1, 2, 3, 4};
  table.returned(partial, {key, {0, 1}, 16, {}});
  EXPECT_EQ(table.held_by(0), 1);
  EXPECT_FALSE(table.leased().contains(id(1)));
  EXPECT_EQ(table.waiting().size(), 3U);
  EXPECT_EQ(table.given_back().size(), 1U);
  const RequestTable::Leased again = lease_next(table, 4);
  EXPECT_EQ(again.request.kv.key, key);
  EXPECT_EQ(again.request.kv.positions, 16);
  EXPECT_EQ(again.request.trajectory.id, id(1));
  EXPECT_EQ(again.request.trajectory.tokens.size(), 4U);
  EXPECT_EQ(table.leased().at(id(1)).tokens, 4U);
  EXPECT_EQ(table.given_back().size(), 0U);
  EXPECT_EQ(lease_next(table, 4).request.trajectory.id, id(2));
  EXPECT_EQ(table.given_back().size(), 0U);
  EXPECT_EQ(table.moves_made(), 0U) << "from group to group";
}

TEST(RequestTable, KvThatAGroupStoredIsForgottenWithTheGroup) {
  RequestTable table = table_of(2);
  lease(table, 0, 2);
  Trajectory partial;
  partial.id = id(1);
  const std::uint64_t key = table.move(id(1), kToTable);
  table.returned(partial, {key, {4, 2}, 16, {}});
  EXPECT_TRUE(table.forget_stored(0).empty());
  EXPECT_EQ(table.forget_stored(4), std::vector<std::uint64_t>{key});
  EXPECT_TRUE(table.forget_stored(4).empty()) << "twice";
  EXPECT_EQ(lease_next(table, 0).request.kv.positions, 0);
}

TEST(RequestTable, ALeaseIsRenewed) {
  RequestTable table = table_of(1);
  (void)table.lease(id(0), 0, 16);
  EXPECT_EQ(table.leased().at(id(0)).until, 16U);
  table.renew(id(0), 32);
  EXPECT_EQ(table.leased().at(id(0)).until, 32U);
}

TEST(RequestTable, OnlyTheGroupThatHoldsARequestFinishesIt) {
  RequestTable table = table_of(2, 3);
  lease(table, 0, 1);
  lease(table, 4, 1);
  EXPECT_THROW(table.finished(id(0), 4), std::logic_error);
  table.finished(id(0), 0);
  EXPECT_EQ(table.finished(), 4U);
  EXPECT_EQ(table.finished_before(), 3U);
  EXPECT_FALSE(table.complete());
  EXPECT_THROW(table.finished(id(0), 0), std::logic_error) << "twice";
  table.grew(std::array{RequestLength{id(0), 12}});  // a late report
  EXPECT_FALSE(table.leased().contains(id(0)));
  table.finished(id(1), 4);
  EXPECT_TRUE(table.complete());
  EXPECT_EQ(table.held_by(0) + table.held_by(4), 0);
}

TEST(RequestTable, LearnsHowLongResponsesBecome) {
  RequestTable table = table_of(3);
  lease(table, 0, 3);
  table.grew(std::array{RequestLength{id(0), 40}});
  EXPECT_EQ(table.leased().at(id(0)).tokens, 40U);
  table.grew(
      std::array{RequestLength{id(0), 30}});  // a late report of the group that had it before
  EXPECT_EQ(table.leased().at(id(0)).tokens, 40U);
  const std::vector<std::uint32_t> running = {0};
  const double before = table.lengths().remaining(running).front();
  table.ended(id(1), 10);
  table.ended(id(2), 10);
  EXPECT_TRUE(table.leased().at(id(1)).ended);
  EXPECT_EQ(table.held_by(0), 3) << "they are not on disk yet";
  EXPECT_LT(table.lengths().remaining(running).front(), before);
}

TEST(RequestTable, EveryRequestIsInOnePlaceWhateverHappens) {
  std::mt19937 random(7);
  RequestTable table = table_of(60, 2);
  std::map<RequestId, int> holders;  // what groups would say they have
  int steps = 0;
  for (; !table.complete(); ++steps) {
    ASSERT_LT(steps, 20'000);
    const int group = static_cast<int>(random() % 4);
    if (holders.empty() || (table.waiting().size() > 0 && random() % 4 == 0)) {
      if (table.waiting().size() == 0) continue;
      const RequestId leased = lease_next(table, group).request.trajectory.id;
      ASSERT_TRUE(holders.emplace(leased, group).second) << "it is somewhere already";
    } else if (random() % 2 == 0) {
      const auto some = std::next(holders.begin(), static_cast<int>(random() % holders.size()));
      if (!table.moves().contains(some->first))
        table.move(some->first, random() % 5 == 0 ? kToTable : group);
    } else if (!table.moves().empty() && random() % 4 != 0) {
      const auto [request, to] = *table.moves().begin();
      if (!holders.contains(request) || random() % 5 == 0) {
        table.kept(request);
      } else if (to == kToTable) {
        Trajectory back;
        back.id = request;
        table.returned(back, {.group = {group, 1}});
        holders.erase(request);
      } else {
        table.moved(request);
        holders[request] = to;
      }
    } else {
      const auto some = std::next(holders.begin(), static_cast<int>(random() % holders.size()));
      table.finished(some->first, some->second);
      holders.erase(some);
    }
    std::map<int, int> held;
    for (const auto& [request, holder] : holders) {
      EXPECT_EQ(table.leased().at(request).group, holder);
      ++held[holder];
    }
    for (int g = 0; g < 4; ++g) EXPECT_EQ(table.held_by(g), held[g]);
    EXPECT_EQ(table.finished() + table.leased().size() + table.waiting().size(), table.total());
    EXPECT_LE(table.given_back().size(), table.waiting().size());
  }
  EXPECT_GT(table.moves_made(), 10U);
}

}  // namespace
}  // namespace paceline::policy
