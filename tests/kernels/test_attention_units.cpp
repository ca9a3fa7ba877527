#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "kernels/cpu/attention_units.hpp"
#include "kernels/cpu/kernel_table.hpp"

namespace paceline::kernels::cpu {
namespace {

constexpr int kBlock = 16;
constexpr int kHeadDim = 64;

/// Sequences with tables of their own, siblings with the first `common` blocks of a prompt's.
struct Made {
  /// A chain; returns it.
  int add(int prompt, int common, int first_position, int rows, const std::int32_t* path = nullptr,
          int base = 0) {
    std::vector<std::int32_t>& table = tables[static_cast<int>(tables.size())];
    for (int b = 0; b * kBlock < first_position + rows; ++b)
      table.push_back(b < common ? 1000 * prompt + b : next++);
    chains.push_back(
        {row, rows, first_position, path == nullptr ? first_position : base, table.data(), path});
    row += rows;
    return static_cast<int>(chains.size()) - 1;
  }
  AttentionUnits cut(int heads, int kv_heads, int threads) const {
    AttentionUnits units;
    units.set(chains, {.layers = 1, .kv_heads = kv_heads, .head_dim = kHeadDim, .block = kBlock},
              heads, threads);
    return units;
  }

  std::map<int, std::vector<std::int32_t>> tables;
  std::vector<Chain> chains;
  int next = 100000;
  int row = 0;
};

/// Every row is in one unit, what a unit shares is seen by all its rows in the same blocks, and
/// every kv head of a unit is in one task.
void expect_sound(const Made& made, const AttentionUnits& cut, int most_rows, int kv_heads,
                  int group = 1) {
  std::set<std::pair<int, int>> rows;
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  std::int64_t work = 0;
  for (const AttentionUnit& unit : cut.units()) {
    EXPECT_LE(unit.work, before) << "the most work comes first";
    before = unit.work;
    work += unit.work;
    EXPECT_LE(unit.rows, most_rows);
    EXPECT_LE(unit.rows, cut.most_rows());
    EXPECT_EQ(unit.shared % kAttentionTile, 0);
    int unit_rows = 0;
    const Chain& front = made.chains[cut.pieces(unit)[0].chain];
    for (const AttentionPiece& piece : cut.pieces(unit)) {
      const Chain& chain = made.chains[piece.chain];
      unit_rows += piece.rows;
      for (int r = 0; r < piece.rows; ++r)
        EXPECT_TRUE(rows.emplace(piece.chain, piece.first + r).second);
      EXPECT_LE(unit.shared, chain.first_position + piece.first);
      EXPECT_LE(unit.shared, chain.path != nullptr ? chain.base : chain.first_position);
      EXPECT_TRUE(std::equal(chain.blocks, chain.blocks + unit.shared / kBlock, front.blocks));
    }
    EXPECT_EQ(unit_rows, unit.rows);
  }
  EXPECT_EQ(work, cut.work());
  auto task = cut.tasks().begin();
  auto sum = cut.sums().begin();
  int segment = 0;
  std::size_t states = 0;
  for (int unit = 0; unit < static_cast<int>(cut.units().size()); ++unit) {
    for (int head = 0; head < kv_heads; ++task) {
      ASSERT_NE(task, cut.tasks().end());
      EXPECT_EQ(task->unit, unit);
      EXPECT_EQ(task->first_head, head);
      EXPECT_GE(task->heads, 1);
      EXPECT_LE(task->heads, cut.most_heads());
      if (task->segments > 0) {
        // One after the other, with as much room for states as there are segments.
        ASSERT_NE(sum, cut.sums().end());
        EXPECT_EQ(sum->unit, unit);
        EXPECT_EQ(sum->first_head, head);
        EXPECT_EQ(task->heads, 1);
        EXPECT_EQ(task->first_segment, segment);
        EXPECT_EQ(task->states, states);
        segment += task->segments;
        states +=
            task->segments * attention_state_floats(1, cut.units()[unit].rows * group, kHeadDim);
        if (segment < sum->segments) continue;
        EXPECT_EQ(segment, sum->segments);
        segment = 0;
        ++sum;
      }
      head += task->heads;
      EXPECT_LE(head, kv_heads);
    }
  }
  EXPECT_EQ(task, cut.tasks().end());
  EXPECT_EQ(sum, cut.sums().end());
  EXPECT_EQ(states, cut.state_floats());
  EXPECT_EQ(static_cast<int>(rows.size()), made.row);
}

/// Of each unit.
std::multiset<std::pair<int, int>> pieces_and_shared(const AttentionUnits& cut) {
  std::multiset<std::pair<int, int>> found;
  for (const AttentionUnit& unit : cut.units()) found.emplace(unit.pieces, unit.shared);
  return found;
}

TEST(AttentionUnits, SiblingsComeTogetherWhereverTheyAre) {
  Made made;
  for (int i = 0; i < 4; ++i) {
    made.add(1, 20, 400 + 30 * i, 1);
    made.add(2, 9, 300 + 30 * i, 5);
  }
  const AttentionUnits cut = made.cut(14, 2, 1);
  expect_sound(made, cut, 16, 2);
  // 20 blocks are 5 tiles; 9 are 2 and a bit. 16 rows of 7 heads come together at most.
  EXPECT_EQ(pieces_and_shared(cut),
            (std::multiset<std::pair<int, int>>{{4, 320}, {3, 128}, {1, 0}}));
}

TEST(AttentionUnits, FewerComeTogetherThatShareNothing) {
  Made made;
  for (int i = 0; i < 4; ++i) made.add(i, 0, 400, 3);
  const AttentionUnits cut = made.cut(14, 2, 1);
  expect_sound(made, cut, 9, 2);
  EXPECT_EQ(pieces_and_shared(cut), (std::multiset<std::pair<int, int>>{{3, 0}, {1, 0}}));
}

TEST(AttentionUnits, NothingIsSharedThatARowDoesNotSee) {
  Made made;
  made.add(1, 20, 319, 1);
  made.add(1, 20, 320, 1);
  const AttentionUnits cut = made.cut(4, 4, 1);
  expect_sound(made, cut, 64, 4);
  ASSERT_EQ(cut.units().size(), 1U);
  EXPECT_EQ(cut.units()[0].shared, 256);
}

TEST(AttentionUnits, BranchesOfATreeShareWhatComesBeforeIt) {
  Made made;
  const std::vector<std::int32_t> path(40, 0);
  const int trunk = made.add(1, 0, 1000, 4);
  const Chain first = made.chains[trunk];
  made.chains.push_back({4, 2, 1001, 1000, first.blocks, path.data()});
  made.chains.push_back({6, 1, 1003, 1000, first.blocks, path.data()});
  made.row = 7;
  const AttentionUnits cut = made.cut(2, 2, 1);
  expect_sound(made, cut, 64, 2);
  ASSERT_EQ(cut.units().size(), 1U);
  EXPECT_EQ(cut.units()[0].shared, 960);
  EXPECT_EQ(cut.longest_path(), 4);
}

TEST(AttentionUnits, AThreadHasSeveral) {
  Made made;
  for (int i = 0; i < 16; ++i) made.add(1, 64, 2000, 1);
  EXPECT_EQ(made.cut(4, 2, 1).units().size(), 1U);
  for (const int threads : {2, 4, 8}) {
    const AttentionUnits cut = made.cut(4, 2, threads);
    expect_sound(made, cut, 32, 2);
    EXPECT_GE(static_cast<int>(cut.tasks().size()), std::min(4 * threads, 32));
    EXPECT_LE(static_cast<int>(cut.tasks().size()), 6 * threads);
  }
}

TEST(AttentionUnits, LongChainsAreCut) {
  Made made;
  made.add(1, 0, 0, 512);
  made.add(2, 0, 700, 1);
  for (const int threads : {1, 2}) expect_sound(made, made.cut(14, 2, threads), 16, 2);
  expect_sound(made, made.cut(256, 2, 1), 1, 2);
}

TEST(AttentionUnits, AreSmallerWhereThereAreMoreThreads) {
  Made made;
  made.add(1, 0, 0, 256);
  expect_sound(made, made.cut(14, 2, 4), 16, 2);
  expect_sound(made, made.cut(14, 2, 16), 9, 2);
}

TEST(AttentionUnits, HeadsAreSideBySideWhereTilesAreUsedFewTimes) {
  Made made;
  for (int i = 0; i < 64; ++i) made.add(i, 0, 2000, 1);
  const int many = made.add(64, 0, 2000, 20);
  const AttentionUnits cut = made.cut(6, 3, 1);
  expect_sound(made, cut, 32, 3);
  for (const AttentionTask& task : cut.tasks()) {
    const bool has_many =
        std::ranges::any_of(cut.pieces(cut.units()[task.unit]),
                            [&](const AttentionPiece& piece) { return piece.chain == many; });
    EXPECT_EQ(task.heads, has_many ? 1 : 3);
  }
  // Threads come first.
  const AttentionUnits shared = made.cut(6, 3, 4);
  expect_sound(made, shared, 32, 3);
  EXPECT_GE(static_cast<int>(shared.tasks().size()), 16);
  // Of 128 KB of tiles: two heads of 256, and what is left over.
  AttentionUnits wide;
  wide.set(made.chains, {.layers = 1, .kv_heads = 3, .head_dim = 256, .block = kBlock}, 3, 1);
  expect_sound(made, wide, 64, 3);
  EXPECT_EQ(wide.most_heads(), 2);
}

TEST(AttentionUnits, OneLongRequestIsCutIntoSegments) {
  Made made;
  made.add(1, 0, 16000, 1);
  for (const int threads : {3, 8, 64}) {
    const AttentionUnits cut = made.cut(14, 2, threads);
    expect_sound(made, cut, 9, 2, 7);
    EXPECT_EQ(cut.sums().size(), 2U);
    // 32 segments of each head; four tasks a thread where there are so many.
    EXPECT_GE(static_cast<int>(cut.tasks().size()), std::min(4 * threads, 64));
    EXPECT_LE(static_cast<int>(cut.tasks().size()), 64);
  }
  // One thread takes all, two take a head each.
  EXPECT_TRUE(made.cut(14, 2, 1).sums().empty());
  EXPECT_TRUE(made.cut(14, 2, 2).sums().empty());
  // Beside others that leave no thread idle it stays whole; with fewer it does not.
  for (int i = 0; i < 64; ++i) made.add(2 + i, 0, 8000, 1);
  expect_sound(made, made.cut(14, 2, 2), 9, 2, 7);
  EXPECT_TRUE(made.cut(14, 2, 2).sums().empty());
  expect_sound(made, made.cut(14, 2, 128), 9, 2, 7);
  EXPECT_EQ(made.cut(14, 2, 128).sums().size(), 2U);
}

TEST(AttentionUnits, WhatIsOneSegmentLongIsNotCut) {
  Made made;
  made.add(1, 0, kAttentionSegment - 1, 1);
  EXPECT_TRUE(made.cut(14, 2, 8).sums().empty());
  made.add(2, 0, kAttentionSegment, 1);
  expect_sound(made, made.cut(14, 2, 8), 9, 2, 7);
  EXPECT_EQ(made.cut(14, 2, 8).sums().size(), 2U);
}

TEST(AttentionUnits, APassMayHaveNoRows) {
  const Made made;
  EXPECT_TRUE(made.cut(0, 0, 2).units().empty());
}

}  // namespace
}  // namespace paceline::kernels::cpu
