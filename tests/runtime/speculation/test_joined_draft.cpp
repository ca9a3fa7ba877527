// Drafts of several drafters as one tree.
#include "runtime/speculation/joined_draft.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace paceline::speculation {
namespace {

template <class T>
std::vector<T> list(std::span<const T> values) {
  return {values.begin(), values.end()};
}

struct TwoDrafts : ::testing::Test {
  // 5 6 7 with a branch 8 after 5, and 5 6 9.
  std::vector<TokenId> one_tokens = {5, 6, 7, 8}, other_tokens = {5, 6, 9};
  std::vector<std::int32_t> one_parents = {-1, 0, 1, 0}, other_parents = {-1, 0, 1};
  std::vector<double> one_values = {0.9, 0.5, 0.4, 0.2}, other_values = {0.8, 0.7, 0.6};
  std::vector<DraftPart> parts = {{one_tokens, one_parents, one_values},
                                  {other_tokens, other_parents, other_values}};
  JoinedDraft joined;
};

TEST_F(TwoDrafts, WhatBeginsAlikeIsShared) {
  joined.join(parts, 10);
  EXPECT_EQ(list(joined.tokens()), (std::vector<TokenId>{5, 6, 9, 7, 8}));
  EXPECT_EQ(list(joined.parents()), (std::vector<std::int32_t>{-1, 0, 1, 1, 0}));
  EXPECT_EQ(list(joined.values()), (std::vector<double>{0.9, 0.7, 0.6, 0.4, 0.2}));
  for (std::size_t t = 0; t < 4; ++t) EXPECT_TRUE(joined.has(0, t));
  for (std::size_t t = 0; t < 3; ++t) EXPECT_TRUE(joined.has(1, t));
}

TEST_F(TwoDrafts, TheLeastLikelyAreLeftOut) {
  joined.join(parts, 3);
  EXPECT_EQ(list(joined.tokens()), (std::vector<TokenId>{5, 6, 9}));
  EXPECT_FALSE(joined.has(0, 2));
  EXPECT_FALSE(joined.has(0, 3));
  EXPECT_TRUE(joined.has(1, 2));
}

TEST_F(TwoDrafts, WhatIsNotKeptIsInNoDraft) {
  joined.join(parts, 10);
  const std::vector<std::uint8_t> keep = {1, 1, 0, 1, 0};
  joined.keep(keep);
  EXPECT_EQ(list(joined.tokens()), (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(list(joined.parents()), (std::vector<std::int32_t>{-1, 0, 1}));
  EXPECT_TRUE(joined.has(0, 2));
  EXPECT_FALSE(joined.has(0, 3));
  EXPECT_TRUE(joined.has(1, 1));
  EXPECT_FALSE(joined.has(1, 2));
}

TEST_F(TwoDrafts, OneAloneStaysAsItIs) {
  const std::vector<DraftPart> alone = {parts[0]};
  joined.join(alone, 4);
  EXPECT_EQ(list(joined.tokens()), one_tokens);
  EXPECT_EQ(list(joined.parents()), one_parents);
  EXPECT_EQ(list(joined.values()), one_values);
  joined.join(parts, 10);
  joined.join(alone, 2);
  EXPECT_EQ(list(joined.tokens()), (std::vector<TokenId>{5, 6}));
  EXPECT_FALSE(joined.has(0, 2));
}

}  // namespace
}  // namespace paceline::speculation
