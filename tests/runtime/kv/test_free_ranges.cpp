#include "runtime/kv/free_ranges.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <vector>

namespace paceline::kv {
namespace {

TEST(FreeRanges, GivesTheLowestPlacesNextToOneAnother) {
  FreeRanges places(10);
  EXPECT_EQ(places.end(), 0);
  EXPECT_EQ(places.take(4).first, 0);
  EXPECT_EQ(places.take(3).first, 4);
  EXPECT_EQ(places.end(), 7);
  for (const int place : {1, 2, 5}) places.give(place);
  const FreeRanges::Range hole = places.take(9);
  EXPECT_EQ(hole.first, 1);
  EXPECT_EQ(hole.count, 2) << "5 is not next to them";
  EXPECT_EQ(places.take(9).first, 5);
  EXPECT_EQ(places.take(9).count, 3);
  EXPECT_EQ(places.take(9).count, 0);
  EXPECT_EQ(places.free(), 0);
  EXPECT_EQ(places.end(), 10);
}

TEST(FreeRanges, RangesThatMeetBecomeOne) {
  std::mt19937 random(1);
  FreeRanges places(100);
  std::vector<int> taken(100);
  for (int i = 0; i < 100; ++i) taken[i] = i;
  EXPECT_EQ(places.take(100).count, 100);
  std::shuffle(taken.begin(), taken.end(), random);
  for (const int place : taken) places.give(place);
  EXPECT_EQ(places.end(), 0);
  EXPECT_EQ(places.take(100).count, 100);
}

TEST(FreeRanges, WhatIsDroppedComesBackWhenItWasInUse) {
  FreeRanges places(10);
  EXPECT_EQ(places.take(6).count, 6);
  places.drop_free();
  EXPECT_EQ(places.free(), 0);
  EXPECT_EQ(places.used(), 6);
  places.give(2);
  EXPECT_EQ(places.used(), 5);
  EXPECT_EQ(places.take(9).first, 2);
  EXPECT_EQ(places.take(9).count, 0);
}

TEST(FreeRanges, APlaceThatIsFreeIsNotGivenBack) {
  FreeRanges places(4);
  EXPECT_THROW(places.give(0), std::logic_error);
  EXPECT_EQ(places.take(2).count, 2);
  EXPECT_THROW(places.give(3), std::logic_error);
  EXPECT_THROW(places.give(4), std::logic_error);
  EXPECT_THROW(places.give(-1), std::logic_error);
}

}  // namespace
}  // namespace paceline::kv
