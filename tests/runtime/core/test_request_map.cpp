#include "runtime/core/request_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>
#include <string>

namespace paceline {
namespace {

TEST(RequestMap, DoesWhatAMapDoes) {
  RequestMap<std::string> map;
  std::map<RequestId, std::string> same;
  std::mt19937 random(7);
  for (int i = 0; i < 4000; ++i) {
    const RequestId id{static_cast<std::uint32_t>(random() % 8),
                       static_cast<std::uint32_t>(random() % 16)};
    switch (random() % 4) {
      case 0:
        map[id] += 'a';
        same[id] += 'a';
        break;
      case 1: {
        const auto [at, added] = map.try_emplace(id, "b");
        const auto [as, too] = same.try_emplace(id, "b");
        EXPECT_EQ(added, too);
        EXPECT_EQ(*at, *as);
        break;
      }
      case 2:
        EXPECT_EQ(map.erase(id), same.erase(id));
        break;
      default: {
        const auto at = map.lower_bound(id);
        const auto as = same.lower_bound(id);
        ASSERT_EQ(at == map.end(), as == same.end());
        if (as != same.end()) {
          EXPECT_EQ(at->first, as->first);
        }
      }
    }
    EXPECT_EQ(map.contains(id), same.contains(id));
    EXPECT_EQ(map.find(id) == map.end(), !same.contains(id));
    ASSERT_TRUE(std::equal(map.begin(), map.end(), same.begin(), same.end()));
  }
}

TEST(RequestMap, ValuesStayWhereTheyAre) {
  RequestMap<int> map;
  int& five = map[{5, 0}];
  for (std::uint32_t p = 0; p < 100; ++p) map.try_emplace({p, 0}, static_cast<int>(p));
  EXPECT_EQ(&map.at({5, 0}), &five);
  EXPECT_EQ(map.erase(map.find({4, 0}))->second, 0);
  EXPECT_EQ(&map.at({5, 0}), &five);
  EXPECT_EQ(map.size(), 99U);
}

TEST(RequestMap, HasNothingThatWasNotAdded) {
  const RequestMap<int> map;
  EXPECT_TRUE(map.empty());
  EXPECT_EQ(map.begin(), map.end());
  EXPECT_THROW((void)map.at({0, 0}), std::out_of_range);
}

}  // namespace
}  // namespace paceline
