#include "runtime/kv/block_pool.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace paceline::kv {
namespace {

// Every set of blocks in use of every small pool, with every place for the line.
TEST(BlockPool, EveryPlanOfAContractionIsAValidRemapping) {
  constexpr std::int32_t kMost = 11;
  for (std::int32_t size = 0; size <= kMost; ++size) {
    for (std::uint32_t used = 0; used < 1U << size; ++used) {
      std::vector<std::int32_t> holders(size);
      std::int32_t in_use = 0;
      for (std::int32_t b = 0; b < size; ++b) {
        holders[b] = (used >> b & 1U) != 0 ? 1 + b % 3 : 0;
        in_use += holders[b] > 0 ? 1 : 0;
      }
      for (std::int32_t line = 0; line <= size; ++line) {
        if (in_use > line) {
          EXPECT_THROW((void)plan_contraction(holders, line), std::logic_error);
          continue;
        }
        const std::vector<std::int32_t> plan = plan_contraction(holders, line);
        ASSERT_EQ(plan.size(), static_cast<std::size_t>(size - line));
        std::set<std::int32_t> places;
        for (std::int32_t b = line; b < size; ++b) {
          const std::int32_t place = plan[b - line];
          ASSERT_EQ(place >= 0, holders[b] > 0);  // no block is lost, none is made
          if (place < 0) continue;
          ASSERT_LT(place, line);                    // from above the line to below it
          ASSERT_EQ(holders[place], 0);              // where nothing was
          ASSERT_TRUE(places.insert(place).second);  // and nothing else goes
        }
      }
    }
  }
}

TEST(BlockPool, GrowsAndShrinksWithItsHolders) {
  std::mt19937 random(3);
  BlockPool pool(8);
  std::map<std::int32_t, int> held;
  for (int turn = 0; turn < 20'000; ++turn) {
    const auto some = [&] { return std::next(held.begin(), random() % held.size())->first; };
    switch (random() % 5) {
      case 0:
      case 1:
        if (pool.available() == 0) break;
        {
          const std::int32_t block = pool.acquire();
          ASSERT_LT(block, pool.size());
          ASSERT_TRUE(held.emplace(block, 1).second);
        }
        break;
      case 2:
        if (held.empty()) break;
        {
          const std::int32_t block = some();
          pool.share(block);
          ++held[block];
        }
        break;
      case 3:
        if (held.empty()) break;
        {
          const std::int32_t block = some();
          pool.release(block);
          if (--held[block] == 0) held.erase(block);
        }
        break;
      default: {
        const auto blocks = static_cast<std::int32_t>(random() % 24);
        if (blocks < pool.used()) {
          EXPECT_THROW((void)pool.resize(blocks), std::logic_error);
          break;
        }
        const std::vector<std::int32_t> plan = pool.resize(blocks);
        std::map<std::int32_t, int> after;
        for (const auto& [block, holders] : held)
          after[block < blocks ? block : plan.at(block - blocks)] = holders;
        held = after;
      }
    }
    ASSERT_EQ(pool.used(), static_cast<std::int32_t>(held.size()));
    for (const auto& [block, holders] : held) ASSERT_TRUE(pool.held(block));
  }
}

// What the pool gained is used last, so that little has to move when it goes.
TEST(BlockPool, UsesNewBlocksLast) {
  BlockPool pool(4);
  const std::int32_t first = pool.acquire();
  (void)pool.resize(9);
  for (int i = 0; i < 3; ++i) EXPECT_LT(pool.acquire(), 4);
  EXPECT_EQ(pool.acquire(), 4);
  EXPECT_LT(first, 4);
}

}  // namespace
}  // namespace paceline::kv
