#include <gtest/gtest.h>

#include <set>

#include "runtime/policy/lease_book.hpp"

namespace paceline::policy {
namespace {

TEST(LeaseBook, FillsRoomInOrderWhileThereIsPlenty) {
  LeaseBook book(1000, 2);
  EXPECT_EQ(book.grant(0, 3), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(book.grant(1, 2), (std::vector<std::size_t>{3, 4}));
  EXPECT_TRUE(book.grant(0, 0).empty());
  EXPECT_TRUE(book.grant(0, -1).empty());
  EXPECT_EQ(book.pending(), 995U);
  EXPECT_EQ(book.leased(), 5U);
}

TEST(LeaseBook, SharesTheEndEvenly) {
  LeaseBook book(10, 4);
  EXPECT_EQ(book.grant(0, 64).size(), 3U);
  EXPECT_EQ(book.grant(1, 64).size(), 3U);
  EXPECT_EQ(book.grant(2, 64).size(), 3U);
  EXPECT_EQ(book.grant(3, 64).size(), 1U);
  EXPECT_EQ(book.pending(), 0U);
}

TEST(LeaseBook, WhatAGroupHoldsCountsForItsShareUntilItEnds) {
  LeaseBook book(8, 2);
  EXPECT_EQ(book.grant(0, 10), (std::vector<std::size_t>{0, 1, 2, 3}));
  EXPECT_TRUE(book.grant(0, 10).empty());
  book.finish(0);
  book.finish(0);
  EXPECT_EQ(book.leased(), 2U);
  // 6 are unfinished: 3 a group, and it holds 2.
  EXPECT_EQ(book.grant(0, 10), std::vector<std::size_t>{4});
  EXPECT_EQ(book.grant(1, 10), (std::vector<std::size_t>{5, 6, 7}));
  EXPECT_EQ(book.leased(), 6U);
}

TEST(LeaseBook, EveryRequestOnceWhateverTheOrderOfEvents) {
  LeaseBook book(97, 3);
  std::set<std::size_t> seen;
  int active[3] = {};
  for (int turn = 0; seen.size() < 97; ++turn) {
    ASSERT_LT(turn, 10000) << "no progress";
    const int group = turn % 3;
    for (const std::size_t r : book.grant(group, 5 - active[group])) {
      EXPECT_TRUE(seen.insert(r).second);
      ++active[group];
    }
    if (active[turn * 7 % 3] > 0) {
      book.finish(turn * 7 % 3);
      --active[turn * 7 % 3];
    }
  }
}

}  // namespace
}  // namespace paceline::policy
