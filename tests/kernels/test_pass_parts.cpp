#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernels/cpu/pass_parts.hpp"

namespace paceline::kernels::cpu {
namespace {

/// A batch of segments.
struct Made {
  explicit Made(const std::vector<Segment>& given) : segments(given) {
    int rows = 0;
    for (Segment& segment : segments) {
      segment.first_row = rows;
      rows += segment.rows;
    }
    tokens.assign(rows, 0);
    batch.tokens = tokens;
    batch.segments = segments;
  }

  std::vector<PassRows> cut(int threads, std::size_t weight_bytes = 0, int many_rows = 12) {
    batch.logit_rows = logit_rows;
    std::vector<PassRows> parts;
    cut_pass(batch, weight_bytes, many_rows, threads, parts);
    return parts;
  }

  std::vector<Segment> segments;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> logit_rows;
  Batch batch;
};

Segment at(int position, int rows, const std::int32_t* parents = nullptr) {
  return {0, rows, position, nullptr, parents};
}

TEST(PassParts, EqualSegmentsAreDividedEqually) {
  Made made(std::vector<Segment>(8, at(300, 1)));
  for (const int most : {2, 4, 8}) {
    const std::vector<PassRows> parts = made.cut(most);
    ASSERT_EQ(static_cast<int>(parts.size()), most);
    for (const PassRows& part : parts) EXPECT_EQ(part.rows, 8 / most);
  }
}

TEST(PassParts, LongTextsCountForMore) {
  Made made({at(4000, 1), at(1000, 1), at(1000, 1), at(1000, 1), at(1000, 1)});
  const std::vector<PassRows> parts = made.cut(2);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].rows, 1);
}

TEST(PassParts, OneThreadOrOneLargeSegmentIsNotDivided) {
  EXPECT_TRUE(Made(std::vector<Segment>(8, at(300, 1))).cut(1).empty());
  EXPECT_TRUE(Made({at(0, 256), at(10, 1), at(10, 1)}).cut(2).empty());
  EXPECT_TRUE(Made({at(5000, 1)}).cut(2).empty());
}

TEST(PassParts, ManyWeightsAreReadAgainForManyRows) {
  Made few(std::vector<Segment>(23, at(300, 1)));
  Made many(std::vector<Segment>(24, at(300, 1)));
  EXPECT_EQ(few.cut(2, 2 << 20).size(), 2U);
  EXPECT_TRUE(few.cut(2, 8 << 20).empty());
  EXPECT_EQ(few.cut(2, 8 << 20, 11).size(), 2U);
  const std::vector<PassRows> parts = many.cut(2, 8 << 20);
  ASSERT_EQ(parts.size(), 2U);
  for (const PassRows& part : parts) EXPECT_EQ(part.rows, 12);
  EXPECT_TRUE(many.cut(3, 8 << 20).empty());
  EXPECT_TRUE(many.cut(2, 16 << 20).empty());
}

// Of 64 rows at position 300 and one further on: 3 in 5 of the work in one part, then half.
TEST(PassParts, ManyWeightsWantEvenParts) {
  std::vector<Segment> segments(64, at(300, 1));
  segments.push_back(at(35'000, 1));
  Made uneven(segments);
  EXPECT_EQ(uneven.cut(2, 2 << 20).size(), 2U);
  EXPECT_TRUE(uneven.cut(2, 8 << 20).empty());
  segments.back() = at(23'000, 1);
  EXPECT_EQ(Made(segments).cut(2, 8 << 20).size(), 2U);
}

TEST(PassParts, LittleWorkIsOnePart) {
  const std::vector<PassRows> parts = Made({at(100, 2)}).cut(4);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].rows, 2);
}

TEST(PassParts, WholeSegmentsWithTheirLogitRows) {
  std::mt19937 random(1);
  const std::int32_t tree[5] = {-1, 0, 1, 0, 3};  // two chains
  int divided = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<Segment> segments;
    const int count = 1 + static_cast<int>(random() % 12);
    for (int i = 0; i < count; ++i) {
      const int position = static_cast<int>(random() % 3000);
      const bool is_tree = random() % 3 == 0;
      segments.push_back(is_tree ? at(position, 5, tree)
                                 : at(position, 1 + static_cast<int>(random() % 9)));
    }
    Made made(segments);
    for (int row = 0; row < static_cast<int>(made.tokens.size()); ++row) {
      if (random() % 2 == 0) made.logit_rows.push_back(row);
    }
    const int most = 2 + static_cast<int>(random() % 5);
    const std::vector<PassRows> parts = made.cut(most);
    if (parts.empty()) continue;
    divided += parts.size() > 1 ? 1 : 0;
    ASSERT_LE(static_cast<int>(parts.size()), most);
    int row = 0;
    int logit_row = 0;
    for (const PassRows& part : parts) {
      ASSERT_GT(part.rows, 0);
      ASSERT_EQ(part.first_row, row);
      ASSERT_EQ(part.first_logit_row, logit_row);
      row += part.rows;
      logit_row += part.logit_rows;
      const auto ends = [&](const Segment& s) { return s.first_row + s.rows == row; };
      ASSERT_TRUE(std::any_of(made.segments.begin(), made.segments.end(), ends));
      const auto before = [&](int from, int to) {
        return (from == 0 || made.logit_rows[from - 1] < part.first_row) &&
               (to == static_cast<int>(made.logit_rows.size()) || made.logit_rows[to] >= row);
      };
      ASSERT_TRUE(before(part.first_logit_row, logit_row));
    }
    ASSERT_EQ(row, static_cast<int>(made.tokens.size()));
    ASSERT_EQ(logit_row, static_cast<int>(made.logit_rows.size()));
  }
  EXPECT_GT(divided, 200);
}

}  // namespace
}  // namespace paceline::kernels::cpu
