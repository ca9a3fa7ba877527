#include "runtime/policy/place/deal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace paceline::policy {
namespace {

using Work = std::vector<std::int64_t>;

/// Of each worker.
Work loads(const Work& work, const std::vector<int>& speeds) {
  const std::vector<int> dealt = deal(work, speeds);
  EXPECT_EQ(dealt.size(), work.size());
  Work load(speeds.size(), 0);
  for (std::size_t i = 0; i < work.size(); ++i) load.at(dealt[i]) += work[i];
  return load;
}

TEST(Deal, LongestFirstToWhoIsDoneFirst) {
  EXPECT_EQ(deal(Work{2, 7, 3, 4, 6, 2}, std::vector{1, 1}), (std::vector{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(loads({5, 5, 5, 5}, {1, 1, 1, 1}), (Work{5, 5, 5, 5}));
}

TEST(Deal, TwiceTheSpeedTwiceTheWork) {
  EXPECT_EQ(loads({4, 4, 4, 4, 4, 4}, {2, 1}), (Work{16, 8}));
  EXPECT_EQ(loads({9}, {1, 4, 2}), (Work{0, 9, 0}));
}

TEST(Deal, LittleOrNoWork) {
  EXPECT_TRUE(deal({}, std::vector{1, 1}).empty());
  EXPECT_EQ(loads({3}, {1, 1}), (Work{3, 0}));
  EXPECT_EQ(loads({0, 0}, {1}), (Work{0}));
}

// Graham, 1969: at most 4/3 - 1/(3 m) of the optimum, which is no less than the mean and than the
// longest piece.
TEST(Deal, NeverFarFromTheBest) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int workers = 1 + static_cast<int>(random() % 8);
    Work work(random() % 40);
    std::int64_t sum = 0;
    std::int64_t longest = 0;
    for (std::int64_t& piece : work) {
      piece = 1 + static_cast<std::int64_t>(random() % 1000);
      sum += piece;
      longest = std::max(longest, piece);
    }
    const Work load = loads(work, std::vector<int>(workers, 1));
    const std::int64_t last = *std::max_element(load.begin(), load.end());
    // List scheduling: who ends last began its last piece when nobody had less.
    EXPECT_LE(last * workers, sum + (workers - 1) * longest) << round;
  }
}

}  // namespace
}  // namespace paceline::policy
