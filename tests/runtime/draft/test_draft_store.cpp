#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "runtime/draft/draft_store.hpp"
#include "tests/runtime/draft/naive_tree.hpp"

namespace paceline::draft {
namespace {

using Text = std::vector<TokenId>;

Text random_text(std::mt19937& random, int tokens, int vocabulary) {
  Text text(tokens);
  for (TokenId& token : text) {
    token = std::uniform_int_distribution(0, vocabulary - 1)(random);
  }
  return text;
}

/// The naive table of what a group's tree holds.
NaiveTree naive_of(const SuffixTree& tree) {
  std::vector<Text> texts;
  for (std::size_t s = 0; s < tree.sequences(); ++s) {
    const auto text = tree.tokens(static_cast<SuffixTree::Sequence>(s));
    texts.emplace_back(text.begin(), text.end());
  }
  return {tree.depth(), texts};
}

TEST(DraftStore, UpdatesOverlapAndGapsAreReported) {
  DraftStore store({.depth = 8});
  EXPECT_EQ(store.update(1, 0, 0, Text{1, 2, 3}, 0), 3U);
  EXPECT_EQ(store.update(1, 0, 1, Text{2, 3, 4}, 0), 4U) << "an overlap adds what is new";
  EXPECT_EQ(store.update(1, 0, 0, Text{1}, 0), 4U);
  EXPECT_EQ(store.update(1, 0, 6, Text{9}, 0), 4U) << "a gap adds nothing";
  EXPECT_EQ(store.update(1, 1, 2, Text{9}, 0), 0U) << "siblings are apart";
  const auto text = store.tree(1)->tokens(0);
  EXPECT_EQ(Text(text.begin(), text.end()), (Text{1, 2, 3, 4}));
  EXPECT_EQ(store.tree(2), nullptr);
}

TEST(DraftStore, WhatIsSaidElsewhereMayBeginInTheMiddle) {
  DraftStore store({.depth = 8});
  store.take_in(1, 0, 0, Text{1, 2}, 0);
  EXPECT_EQ(store.groups(), 0U) << "a group that was not registered";
  store.register_group(1, 100, 0);
  store.update(1, 0, 0, Text{1, 2, 3}, 0);
  store.take_in(1, 7, 100, Text{5, 6}, 0);
  store.take_in(1, 7, 101, Text{6, 7}, 0);
  store.take_in(1, 7, 110, Text{9}, 0);
  EXPECT_EQ(difference(*store.tree(1), NaiveTree(8, {{1, 2, 3}, {5, 6, 7}})), "")
      << "an overlap adds what is new, a gap nothing";
  EXPECT_EQ(store.update(1, 7, 0, Text(104, 8), 0), 104U) << "a request that came here goes on";
  EXPECT_EQ(difference(*store.tree(1), NaiveTree(8, {{1, 2, 3}, {5, 6, 7, 8}})), "");
}

TEST(DraftStore, GroupsExpireAfterTheirTimeToLive) {
  DraftStore store({.depth = 8, .default_ttl = 50});
  store.register_group(1, 10, 0);
  store.update(2, 0, 0, Text{1}, 0);
  EXPECT_EQ(store.expire(9), 0);
  store.update(1, 0, 0, Text{1}, 9);
  EXPECT_EQ(store.expire(18), 0) << "an update extends it";
  EXPECT_EQ(store.expire(19), 1);
  EXPECT_EQ(store.tree(1), nullptr);
  EXPECT_EQ(store.expire(50), 1);
  EXPECT_EQ(store.groups(), 0U);
  EXPECT_EQ(store.bytes(), 0U);
}

TEST(DraftStore, AGroupForgetsItsOlderTokensToStayWithinItsBound) {
  std::mt19937 random(2);
  const StoreLimits limits{.depth = 8, .max_group_bytes = 400'000};
  DraftStore store(limits);
  std::uint64_t size = 0;
  bool forgot = false;
  for (int round = 0; round < 400; ++round) {
    const Text text = random_text(random, 50, 200);
    const std::uint64_t held = store.update(1, round % 2, size / 2, text, 0);
    ASSERT_EQ(held, size / 2 + text.size()) << "forgotten tokens count as held";
    if (round % 2 == 1) size += 2 * text.size();
    EXPECT_LE(store.bytes(), limits.max_group_bytes);
    forgot = forgot || store.tree(1)->tokens(0).size() < held;
  }
  EXPECT_TRUE(forgot);
  EXPECT_EQ(difference(*store.tree(1), naive_of(*store.tree(1))), "");
}

TEST(DraftStore, TheGroupsLongestWithoutUpdateGoFirst) {
  std::mt19937 random(3);
  DraftStore store({.depth = 8, .max_bytes = 1'000'000});
  for (GroupId group = 0; group < 100; ++group) {
    store.update(group, 0, 0, random_text(random, 500, 1000), group);
    EXPECT_LE(store.bytes(), 1'000'000U);
    EXPECT_NE(store.tree(group), nullptr);
  }
  EXPECT_EQ(store.tree(0), nullptr);
  EXPECT_NE(store.tree(98), nullptr);
}

TEST(DraftStore, DraftsDoNotDependOnWhereTheTextIs) {
  std::mt19937 random(4);
  DraftStore store({.depth = 12});
  for (std::uint32_t request = 0; request < 200; ++request) {
    const Text text = random_text(random, 200, 4);
    store.update(request / 8, request % 8, 0, text, 0);
    const auto drafted = [&](std::uint32_t sample) {
      DraftBuffers draft(8);
      SpeculationScratch scratch;
      SpeculationSlot slot;
      slot.group = request / 8;
      slot.sample = sample;
      slot.size = text.size();
      slot.text = std::span(text).last(11);
      slot.options.limits = {8, 4, 3};
      slot.output = draft.output();
      store.speculate(slot, scratch);
      return std::tuple(slot.result.count, draft.tokens, draft.parents, draft.scores);
    };
    EXPECT_EQ(drafted(request % 8), drafted(99)) << request;
  }
}

TEST(DraftStore, EarlierStepsHaveTreesOfTheirOwnAndGoFirst) {
  constexpr std::size_t kBytes = 1 << 18;
  DraftStore store({.depth = 8, .max_group_bytes = kBytes});
  store.take_in_earlier(1, 1, 0, 0, Text{1, 2}, true, 0);
  EXPECT_EQ(store.groups(), 0U) << "a group that was not registered";
  store.register_group(1, 100, 0);
  store.take_in_earlier(1, 3, 0, 0, Text{5, 6}, true, 0);
  store.take_in_earlier(1, 1, 0, 0, Text{1, 2}, true, 0);
  store.take_in_earlier(1, 1, 1, 0, Text{1, 3}, true, 0);
  store.take_in_earlier(1, 1, 1, 0, Text{8, 8}, true, 0);
  const auto earlier = store.earlier(1);
  ASSERT_EQ(earlier.size(), 2U);
  EXPECT_EQ(earlier[0]->age, 1U);
  EXPECT_EQ(difference(earlier[0]->tree, NaiveTree(8, {{1, 2}, {1, 3}})), "") << "taken in once";
  EXPECT_EQ(difference(earlier[1]->tree, NaiveTree(8, {{5, 6}})), "");
  EXPECT_EQ(store.tree(1)->sequences(), 0U);
  EXPECT_TRUE(store.earlier(2).empty());

  std::mt19937 random(1);
  const std::size_t before = store.bytes();
  store.take_in_earlier(1, 2, 0, 0, random_text(random, 100, 50), true, 0);
  EXPECT_GT(store.bytes(), before);
  Text said;
  while (store.earlier(1).size() == 3 && said.size() < 10'000) {
    const Text more = random_text(random, 50, 50);
    store.update(1, 0, said.size(), more, 0);
    said.insert(said.end(), more.begin(), more.end());
  }
  EXPECT_LE(store.bytes(), kBytes);
  ASSERT_EQ(store.earlier(1).size(), 2U) << "the oldest goes first";
  EXPECT_EQ(store.earlier(1)[1]->age, 2U);
  EXPECT_EQ(store.tree(1)->tokens(0).size(), said.size()) << "before texts of this step";
  EXPECT_FALSE(store.whole(1));
  store.take_in_earlier(1, 3, 0, 0, Text{5, 6}, true, 0);
  EXPECT_EQ(store.earlier(1).size(), 2U) << "and does not come back";
  store.register_group(1, 100, 0);
  EXPECT_TRUE(store.whole(1)) << "until a request does";
}

TEST(DraftStore, EarlierStepsAreTakenInBitByBit) {
  DraftStore store({.depth = 8});
  store.register_group(1, 100, 0, Text{4});
  store.take_in_earlier(1, 1, 0, 2, Text{3}, false, 0);
  EXPECT_TRUE(store.earlier(1).empty()) << "a gap";
  store.take_in_earlier(1, 1, 0, 0, Text{1, 2}, false, 0);
  store.take_in_earlier(1, 1, 1, 0, Text{1}, true, 0);
  store.take_in_earlier(1, 1, 0, 1, Text{2, 3}, false, 0);
  store.take_in_earlier(1, 1, 0, 4, Text{5}, true, 0);
  ASSERT_EQ(store.earlier(1).size(), 1U);
  EXPECT_EQ(difference(store.earlier(1)[0]->tree, NaiveTree(8, {{4, 1, 2, 3}, {4, 1}})), "");
  for (const std::uint32_t age : {9U, 5U, 7U, 3U})
    store.take_in_earlier(1, age, 0, 0, Text{1}, true, 0);
  EXPECT_EQ(store.earlier(1).size(), 4U) << "whatever a server says";
  EXPECT_EQ(store.earlier(1)[3]->age, 9U);
}

// What earlier steps said is dropped before what this step did, of the oldest groups first.
TEST(DraftStore, PastTheirMemoryGroupsDropEarlierStepsFirst) {
  std::mt19937 random(5);
  DraftStore store({.depth = 8, .max_bytes = 400'000});
  GroupId group = 0;
  for (; group < 40 && (group < 2 || store.whole(0)); ++group) {
    store.register_group(group, 100, group);
    store.take_in_earlier(group, 1, 0, 0, random_text(random, 400, 50), true, group);
    store.update(group, 0, 0, random_text(random, 100, 50), group);
    EXPECT_LE(store.bytes(), 400'000U);
  }
  ASSERT_LT(group, 40U);
  EXPECT_TRUE(store.earlier(0).empty());
  EXPECT_EQ(store.tree(0)->tokens(0).size(), 100U);
  EXPECT_TRUE(store.whole(group - 2));
  for (; group < 200 && store.tree(0) != nullptr; ++group) {
    store.update(group, 0, 0, random_text(random, 100, 50), group);
    EXPECT_LE(store.bytes(), 400'000U);
  }
  ASSERT_EQ(store.tree(0), nullptr) << "then they go themselves";
  for (GroupId g = 1; g < group; ++g) EXPECT_TRUE(store.earlier(g).empty());
}

}  // namespace
}  // namespace paceline::draft
