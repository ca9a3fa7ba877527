// What stays in memory, what goes down and comes up, what is lost, and that nothing is ever mixed
// up, whatever ends when.
#include "runtime/kv/store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/runtime/kv/scripted_tiers.hpp"

namespace paceline::kv {
namespace {

using test::ScriptedTiers;
using Values = std::vector<ScriptedTiers::Value>;

std::vector<std::byte*> places(Values& values) {
  std::vector<std::byte*> at;
  for (auto& value : values) at.push_back(reinterpret_cast<std::byte*>(&value));
  return at;
}

struct World {
  World(int memory, int disk, int at_once = 4)
      : tiers(memory, disk), store(tiers, {memory, disk, at_once}, [this](const std::string& w) {
          warned.push_back(w);
        }) {}
  void rest() {
    while (tiers.end_one(false) || tiers.end_one(true)) store.settle();
  }
  bool put(Store::Key key, Values values, int first = 0) {
    const Store::Ticket ticket = store.put(key, first, places(values));
    rest();
    return store.ended(ticket).value();
  }
  /// Nothing where it fails.
  Values get(Store::Key key, int count, int first = 0) {
    Values values(count);
    const Store::Ticket ticket = store.get(key, first, places(values));
    rest();
    return store.ended(ticket).value() ? values : Values{};
  }
  void expect_empty() {
    EXPECT_EQ(store.counts().in_memory, 0U);
    EXPECT_EQ(store.counts().on_disk, 0U);
    EXPECT_EQ(tiers.end, 0);
  }

  ScriptedTiers tiers;
  std::vector<std::string> warned;
  Store store;
};

TEST(Store, GivesBackWhatWasPut) {
  World world(10, 0);
  EXPECT_TRUE(world.put(1, {11, 12, 13}));
  EXPECT_TRUE(world.put(2, {21}));
  EXPECT_EQ(world.get(1, 3), (Values{11, 12, 13}));
  EXPECT_EQ(world.get(1, 2, 1), (Values{12, 13})) << "it stays stored";
  EXPECT_EQ(world.get(2, 1), (Values{21}));
  EXPECT_EQ(world.get(3, 1), Values{});
  EXPECT_EQ(world.get(2, 2), Values{}) << "so much was not put";
  EXPECT_EQ(world.store.counts().from_memory, 6U);
  world.store.drop(1);
  EXPECT_EQ(world.store.counts().in_memory, 1U) << "freed at once";
  EXPECT_EQ(world.get(1, 1), Values{});
  world.store.drop(2);
  world.store.drop(7);
  world.expect_empty();
  EXPECT_TRUE(world.warned.empty());
}

TEST(Store, WhatIsPutAgainReplacesWhatCameAfter) {
  World world(10, 0);
  EXPECT_TRUE(world.put(1, {11, 12, 13}));
  EXPECT_TRUE(world.put(1, {22, 23, 24}, 1));
  EXPECT_EQ(world.get(1, 4), (Values{11, 22, 23, 24}));
  EXPECT_TRUE(world.put(1, {31}));
  EXPECT_EQ(world.get(1, 2), Values{});
  EXPECT_EQ(world.store.counts().in_memory, 1U);
  EXPECT_FALSE(world.put(1, {5}, 2)) << "there is no block before it";
  world.expect_empty();
}

TEST(Store, WithoutADiskWhatIsNeededLastIsLost) {
  World world(6, 0);
  EXPECT_TRUE(world.put(1, {1, 1, 1}));
  EXPECT_TRUE(world.put(2, {2, 2, 2}));
  EXPECT_FALSE(world.put(3, {3})) << "put last, needed last";
  const std::vector<Store::Key> order{4, 2};
  world.store.need(order);
  EXPECT_TRUE(world.put(4, {4, 4}));
  EXPECT_EQ(world.get(1, 3), Values{});
  EXPECT_EQ(world.get(2, 3), (Values{2, 2, 2}));
  EXPECT_EQ(world.get(4, 2), (Values{4, 4}));
  EXPECT_FALSE(world.put(5, Values(7, 5))) << "more than there is";
  EXPECT_EQ(world.get(2, 3), (Values{2, 2, 2}));
  EXPECT_EQ(world.store.counts().lost, 3U);
  EXPECT_EQ(world.warned.size(), 1U);
}

TEST(Store, WhatIsNeededLastGoesDownFirstAndIsTakenFromThere) {
  World world(8, 100);  // of memory, a unit is kept free
  for (const Store::Key key : {1, 2, 3, 4}) EXPECT_TRUE(world.put(key, Values(2, key)));
  EXPECT_EQ(world.store.counts().in_memory, 7U);
  const std::vector<Store::Key> order{4, 3, 2, 1};
  world.store.need(order);
  EXPECT_TRUE(world.put(5, Values(3, 5)));
  const std::uint64_t from_disk = world.store.counts().from_disk;
  EXPECT_EQ(world.get(4, 2), (Values{4, 4}));
  EXPECT_EQ(world.get(3, 2), (Values{3, 3}));
  EXPECT_EQ(world.store.counts().from_disk, from_disk);
  EXPECT_EQ(world.get(5, 3), (Values{5, 5, 5}));
  EXPECT_EQ(world.store.counts().from_disk, from_disk + 3) << "it was not foreseen at all";
  for (const Store::Key key : order) world.store.drop(key);
  world.store.drop(5);
  world.rest();
  world.expect_empty();
}

TEST(Store, WhatIsForeseenComesUpBeforeItIsAskedFor) {
  World world(8, 100);
  for (const Store::Key key : {1, 2, 3, 4, 5}) EXPECT_TRUE(world.put(key, Values(3, key)));
  const std::vector<Store::Key> order{5, 4};
  world.store.need(order);
  world.rest();
  EXPECT_EQ(world.get(5, 3), (Values{5, 5, 5}));
  EXPECT_EQ(world.get(4, 3), (Values{4, 4, 4}));
  EXPECT_EQ(world.store.counts().from_disk, 0U);
  const std::uint64_t foreseen = world.store.counts().foreseen;
  EXPECT_GE(foreseen, 3U);
  EXPECT_EQ(world.get(5, 3), (Values{5, 5, 5}));
  EXPECT_EQ(world.store.counts().foreseen, foreseen) << "taken once, it has been counted";
  // What is foreseen does not go round in circles.
  const std::uint64_t moved = world.store.counts().came_up + world.store.counts().went_down;
  for (int i = 0; i < 5; ++i) {
    world.store.need(order);
    world.rest();
  }
  EXPECT_EQ(world.store.counts().came_up + world.store.counts().went_down, moved);
}

TEST(Store, WhatIsLongerThanMemoryGoesThroughIt) {
  World world(4, 100, 2);
  Values values(50);
  for (int i = 0; i < 50; ++i) values[i] = i;
  EXPECT_TRUE(world.put(1, values));
  EXPECT_EQ(world.get(1, 50), values);
  const Store::Ticket hold = world.store.hold(1, 0);
  world.rest();
  EXPECT_EQ(world.store.ended(hold), false) << "it cannot be in memory all at once";
  EXPECT_EQ(world.get(1, 50), values) << "but is still there";
}

TEST(Store, BothTiersFullTheLastInEitherIsLost) {
  World world(4, 6, 2);
  for (const Store::Key key : {1, 2, 3, 4, 5}) EXPECT_TRUE(world.put(key, Values(2, key)));
  EXPECT_FALSE(world.put(6, {6, 6, 6}));
  const std::vector<Store::Key> order{7, 1, 2, 3, 5};  // 4 is on disk
  world.store.need(order);
  world.rest();
  EXPECT_TRUE(world.put(7, {7, 7}));
  EXPECT_EQ(world.get(4, 2), Values{});
  for (const Store::Key key : order) EXPECT_EQ(world.get(key, 2), Values(2, key));
}

TEST(Store, WhatIsHeldStaysInMemoryUntilItIsLetGo) {
  World world(4, 100, 2);
  EXPECT_TRUE(world.put(1, {11, 12}));
  EXPECT_TRUE(world.put(2, {21, 22, 23}));
  const Store::Ticket hold = world.store.hold(2, 1);
  world.rest();
  ASSERT_EQ(world.store.ended(hold), true);
  EXPECT_TRUE(world.put(3, Values(9, 3)));
  world.store.drop(2);
  EXPECT_EQ(world.get(2, 1), Values{});
  const auto held = world.store.held(hold);
  ASSERT_EQ(held.size(), 2U);
  EXPECT_EQ(*reinterpret_cast<const ScriptedTiers::Value*>(held[0].data()), 22U);
  EXPECT_EQ(*reinterpret_cast<const ScriptedTiers::Value*>(held[1].data()), 23U);
  EXPECT_TRUE(world.put(2, {4})) << "of the same name, and another";
  world.store.let_go(hold);
  world.rest();
  for (const Store::Key key : {1, 2, 3}) world.store.drop(key);
  world.expect_empty();
  EXPECT_THROW(world.store.let_go(hold), std::logic_error);
}

TEST(Store, HoldsThatWaitForOneAnothersRoomDoNotWaitForEver) {
  World world(5, 100, 1);
  EXPECT_TRUE(world.put(1, Values(4, 1)));
  EXPECT_TRUE(world.put(2, Values(4, 2)));
  const Store::Ticket first = world.store.hold(1, 0);
  const Store::Ticket second = world.store.hold(2, 0);
  world.rest();
  EXPECT_EQ(world.store.ended(first), true);
  EXPECT_EQ(world.store.ended(second), std::nullopt) << "the first may be let go";
  world.store.let_go(first);
  world.rest();
  EXPECT_EQ(world.store.ended(second), true);
}

TEST(Store, ADamagedBlockEndsTheEntryBeforeIt) {
  for (const bool on_disk : {false, true}) {
    for (const bool held : {false, true}) {
      World world(8, 100);
      EXPECT_TRUE(world.put(1, {11, 12, 13, 14}));
      if (on_disk) {
        const std::vector<Store::Key> order{2};
        world.store.need(order);
        EXPECT_TRUE(world.put(2, Values(7, 2)));
        int slot = 0;
        while (world.tiers.on_disk(slot) != 13) ++slot;
        world.tiers.on_disk(slot) ^= 1;
      } else {
        world.tiers.in_memory(2) ^= 1;
      }
      if (held) {
        const Store::Ticket hold = world.store.hold(1, 0);
        world.rest();
        EXPECT_EQ(world.store.ended(hold), false);
        const Store::Ticket again = world.store.hold(1, 0);
        EXPECT_EQ(world.store.ended(again), false) << "a part of it is not what was put";
      } else {
        EXPECT_EQ(world.get(1, 4), Values{});
      }
      const StoreCounts& counts = world.store.counts();
      EXPECT_EQ(counts.damaged, 1U);
      EXPECT_EQ(counts.from_memory + counts.from_disk, 3U) << "the damaged block does not count";
      EXPECT_EQ(world.get(1, 3), Values{});
      EXPECT_EQ(world.get(1, 2), (Values{11, 12}));
      EXPECT_EQ(world.warned.size(), 1U);
      EXPECT_TRUE(world.put(1, {23}, 2)) << "it goes on from there";
      EXPECT_EQ(world.get(1, 3), (Values{11, 12, 23}));
    }
  }
}

TEST(Store, DamagedBlocksThatAreReadAheadOfNeedDoNotCount) {
  World world(8, 100);
  for (const Store::Key key : {1, 2, 3, 4, 5}) EXPECT_TRUE(world.put(key, Values(3, key)));
  for (int slot = 0; slot < 100; ++slot) {
    if (world.tiers.on_disk(slot) == 5) world.tiers.on_disk(slot) ^= 1;
  }
  const std::vector<Store::Key> order{5};
  world.store.need(order);
  world.rest();
  EXPECT_GT(world.store.counts().damaged, 0U);
  EXPECT_EQ(world.store.counts().came_up, 0U);
}

TEST(Store, ADiskThatFailsCostsWhatIsThereAndOneWarningEach) {
  World world(8, 100);
  for (const Store::Key key : {1, 2, 3}) EXPECT_TRUE(world.put(key, Values(3, key)));
  EXPECT_GT(world.store.counts().on_disk, 0U);
  world.tiers.disk_fails = true;
  int there = 0;
  for (Store::Key key = 4; key < 20; ++key) {
    world.put(key, Values(3, key));
    EXPECT_LE(world.store.counts().in_memory, 8U);
  }
  for (Store::Key key = 1; key < 20; ++key) there += world.get(key, 3) == Values(3, key) ? 1 : 0;
  EXPECT_GE(there, 2) << "memory goes on";
  EXPECT_LE(there, 3);
  EXPECT_EQ(world.store.counts().from_disk, 0U) << "no block was read";
  EXPECT_EQ(world.warned.size(), 2U) << "one of writing, one of reading";
}

TEST(Store, WhatIsUnderWayWhenItIsDroppedFailsAndIsFreedAtItsEnd) {
  World world(8, 100);
  Values values{1, 2, 3};
  const Store::Ticket put = world.store.put(1, 0, places(values));
  world.store.drop(1);
  EXPECT_EQ(world.store.ended(put), std::nullopt) << "the blocks are being read";
  EXPECT_TRUE(world.put(1, {4}));
  EXPECT_EQ(world.store.ended(put), false);
  Values one(1);
  const Store::Ticket get = world.store.get(1, 0, places(one));
  world.store.drop(1);
  EXPECT_EQ(world.store.ended(get), std::nullopt);
  world.rest();
  EXPECT_EQ(world.store.ended(get), false);
  world.expect_empty();
}

// Requests come and go at random, and so do their needs; jobs end whenever they like. Whatever
// succeeds gives what was put, and in the end nothing is left.
TEST(Store, NothingIsEverMixedUp) {
  int restored = 0;
  int failed = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    std::mt19937_64 random(seed);
    const auto one_in = [&](int n) { return random() % n == 0; };
    const int memory = 4 + static_cast<int>(random() % 12);
    const int disk = one_in(3) ? 0 : static_cast<int>(random() % 30);
    World world(memory, disk, 1 + static_cast<int>(random() % 4));
    struct Under {
      char kind;
      Store::Key key;
      int first;
      Values values;
      Store::Ticket ticket;
    };
    std::list<Under> under;
    std::map<Store::Key, Values> stored;  // as it was put last
    std::map<Store::Key, int> versions;
    std::vector<std::pair<Store::Ticket, Values>> holds;
    const auto is_under_way = [&](Store::Key key) {
      return std::any_of(under.begin(), under.end(), [&](const Under& u) { return u.key == key; });
    };
    for (int turn = 0; turn < 200; ++turn) {
      const Store::Key key = random() % 8;
      const std::uint64_t what = random() % 12;
      if (what < 4 && !is_under_way(key)) {
        Values& now = stored[key];
        const int first = one_in(2) ? 0 : static_cast<int>(random() % (now.size() + 1));
        Values values(1 + random() % 5);
        for (auto& value : values) value = random();
        now.resize(first);
        now.insert(now.end(), values.begin(), values.end());
        under.push_back({'p', key, first, values, 0});
        under.back().ticket = world.store.put(key, first, places(under.back().values));
      } else if (what < 7 && !is_under_way(key) && stored.contains(key)) {
        const int first = static_cast<int>(random() % stored[key].size());
        under.push_back({'g', key, first, Values(stored[key].size() - first), 0});
        under.back().ticket = world.store.get(key, first, places(under.back().values));
      } else if (what < 8 && !is_under_way(key) && stored.contains(key)) {
        const int first = static_cast<int>(random() % stored[key].size());
        under.push_back({'h', key, first, {}, 0});
        under.back().ticket = world.store.hold(key, first);
      } else if (what == 8) {
        world.store.drop(key);
        stored.erase(key);
      } else if (what == 9) {
        std::vector<Store::Key> keys{0, 1, 2, 3, 4, 5, 6, 7};
        std::shuffle(keys.begin(), keys.end(), random);
        keys.resize(random() % 8);
        world.store.need(keys);
      } else if (what == 10 && !holds.empty()) {
        for (std::size_t i = 0; i < holds.back().second.size(); ++i) {
          const auto held = world.store.held(holds.back().first);
          EXPECT_EQ(*reinterpret_cast<ScriptedTiers::Value*>(held[i].data()),
                    holds.back().second[i]);
        }
        world.store.let_go(holds.back().first);
        holds.pop_back();
      } else if (what == 11 && one_in(20)) {
        world.tiers.disk_fails = true;
      }
      for (std::uint64_t ends = random() % 3; ends > 0; --ends) world.tiers.end_one(one_in(2));
      world.store.settle();
      EXPECT_LE(world.store.counts().in_memory, static_cast<unsigned>(memory));
      EXPECT_LE(world.store.counts().on_disk, static_cast<unsigned>(disk));
      for (auto u = under.begin(); u != under.end();) {
        const std::optional<bool> done = world.store.ended(u->ticket);
        if (!done) {
          ++u;
          continue;
        }
        ++(*done ? restored : failed);
        if (*done && u->kind != 'p') {
          ASSERT_TRUE(stored.contains(u->key)) << "of what was dropped, seed " << seed;
          const Values expected(stored[u->key].begin() + u->first, stored[u->key].end());
          if (u->kind == 'g') {
            EXPECT_EQ(u->values, expected) << "seed " << seed;
          }
          if (u->kind == 'h') holds.emplace_back(u->ticket, expected);
        }
        if (!*done && u->kind == 'p') {
          EXPECT_FALSE(world.store.has(u->key));
        }
        u = under.erase(u);
      }
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << " turn " << turn;
    }
    for (const auto& [ticket, values] : holds) world.store.let_go(ticket);
    world.rest();
    // What waits for room gets it when what is held is let go.
    for (std::size_t before = under.size() + 1; under.size() < before;) {
      before = under.size();
      for (auto u = under.begin(); u != under.end();) {
        const std::optional<bool> done = world.store.ended(u->ticket);
        if (done == true && u->kind == 'h') world.store.let_go(u->ticket);
        u = done ? under.erase(u) : std::next(u);
        world.rest();
      }
    }
    ASSERT_TRUE(under.empty()) << "something waits for ever, seed " << seed;
    for (Store::Key key = 0; key < 8; ++key) world.store.drop(key);
    world.rest();
    world.expect_empty();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(restored, 5000);
  EXPECT_GT(failed, 500);
}

}  // namespace
}  // namespace paceline::kv
