#include <gtest/gtest.h>

#include "runtime/core/error.hpp"
#include "runtime/policy/place/layout.hpp"

namespace paceline::policy {
namespace {

LayoutFacts facts(int ranks, int ranks_per_node = 64) {
  LayoutFacts f;
  f.ranks = ranks;
  f.segments = 4;
  f.weight_bytes = 10'000;
  f.memory_per_rank = 1'000'000;
  for (int r = 0; r < ranks; ++r) f.node_of_rank.push_back(r / ranks_per_node);
  return f;
}

bool mentions(const Layout& layout, const std::string& text) {
  for (const std::string& line : layout.explanation) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

std::vector<Role> roles(const Layout& layout) {
  std::vector<Role> all;
  for (int rank = 0; rank < layout.placement.ranks; ++rank)
    all.push_back(layout.placement.role(rank));
  return all;
}

std::vector<int> groups(const Layout& layout) {
  std::vector<int> all;
  for (int rank = 0; rank < layout.placement.ranks; ++rank)
    all.push_back(layout.placement.group(rank));
  return all;
}

std::string refusal(const LayoutFacts& f, const LayoutSettings& settings) {
  try {
    (void)plan_layout(f, settings);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Layout, DataParallelWhenAModelFits) {
  const Layout layout = plan_layout(facts(4), {});
  EXPECT_EQ(layout.placement.degrees(), std::vector<int>{1});
  EXPECT_EQ(layout.groups(), 4);
  EXPECT_EQ(roles(layout), std::vector<Role>(4, Role::verifier));
  EXPECT_TRUE(mentions(layout, "override: layout.verifier_tp"));
}

// What each rank has whole is the same at all degrees.
TEST(Layout, WholeMatricesAreNotCut) {
  LayoutFacts f = facts(8);
  f.memory_per_rank = 8'000;
  EXPECT_EQ(plan_layout(f, {}).placement.least_tp(), 2);
  f.whole_bytes = 4'000;
  EXPECT_EQ(plan_layout(f, {}).placement.least_tp(), 4);
}

// A leader has its drafters whole, whatever the degree.
TEST(Layout, RoomIsLeftForALeadersDrafters) {
  LayoutFacts f = facts(8);
  f.memory_per_rank = 8'000;
  f.drafter_bytes = 600;
  EXPECT_EQ(plan_layout(f, {}).placement.least_tp(), 2);
  f.drafter_bytes = 700;
  EXPECT_EQ(plan_layout(f, {}).placement.least_tp(), 4);
  EXPECT_TRUE(mentions(plan_layout(f, {}), "GiB of drafters"));
}

TEST(Layout, CutsTheModelOnlyAsFarAsItMust) {
  LayoutFacts f = facts(8);
  f.memory_per_rank = 5'000;
  EXPECT_EQ(plan_layout(f, {}).placement.least_tp(),
            4);  // 10000 / 2 = 5000 > 0.7 * 5000; 2500 fits
  f.memory_per_rank = 8'000;
  EXPECT_EQ(plan_layout(f, {}).placement.least_tp(), 2);
  f.memory_per_rank = 0;  // unknown
  EXPECT_EQ(plan_layout(f, {}).placement.least_tp(), 1);
}

TEST(Layout, WhatRanksHaveInCommonCountsOnce) {
  LayoutFacts f = facts(16);
  f.memory_per_rank = 5'000;
  f.sharers = 2;  // 10000 / 2 = 5000 > 3500, and so it is of two halves for two ranks
  EXPECT_EQ(plan_layout(f, {}).placement.least_tp(), 4);
  f.sharers = 3;  // 3333 of one copy
  const Layout layout = plan_layout(f, {});
  EXPECT_EQ(layout.placement.least_tp(), 1);
  EXPECT_TRUE(mentions(layout, ", 3 ranks to a copy) fits 70 % of a rank's"));
}

TEST(Layout, GroupsOfNeighboursAndSpares) {
  const Layout layout =
      plan_layout(facts(5, 3), {.verifier_tp = {2}, .verifier_groups = {}, .drafters = {}});
  EXPECT_EQ(layout.groups(), 2);
  EXPECT_EQ(roles(layout), (std::vector<Role>{Role::verifier, Role::verifier_member, Role::verifier,
                                              Role::verifier_member, Role::spare}));
  EXPECT_EQ(groups(layout), (std::vector<int>{0, 0, 1, 1, -1}));
  EXPECT_TRUE(mentions(layout, "1 of 5 ranks has no role and stays idle"));
  EXPECT_TRUE(mentions(layout, "group 1 spans nodes"));
}

TEST(Layout, RefusalsNameTheSettingAndTheNumbers) {
  EXPECT_NE(refusal(facts(8), {.verifier_tp = {3}, .verifier_groups = {}, .drafters = {}})
                .find("degree of 3 does not divide"),
            std::string::npos);
  EXPECT_NE(refusal(facts(8), {.verifier_tp = {8}, .verifier_groups = {}, .drafters = {}})
                .find("powers of two up to 4"),
            std::string::npos);
  EXPECT_NE(refusal(facts(2), {.verifier_tp = {4}, .verifier_groups = {}, .drafters = {}})
                .find("needs 4 ranks, but the job has 2"),
            std::string::npos);
  EXPECT_NE(refusal(facts(4), {.verifier_tp = {2}, .verifier_groups = 3, .drafters = {}})
                .find("need 6 ranks, but the job has 4"),
            std::string::npos);
  EXPECT_NE(refusal(facts(4), {.verifier_tp = {}, .verifier_groups = {}, .drafters = 4})
                .find("layout.drafters: 4 drafter ranks leave none"),
            std::string::npos);
  EXPECT_NE(refusal(facts(4), {.verifier_tp = {4}, .verifier_groups = {}, .drafters = 1})
                .find("has 4, 1 of them drafters"),
            std::string::npos);
}

TEST(Layout, GroupsOfSeveralDegreesTheLargestFirst) {
  const Layout layout =
      plan_layout(facts(8), {.verifier_tp = {1, 4, 2}, .verifier_groups = {}, .drafters = {}});
  EXPECT_EQ(layout.placement.groups, (std::vector<GroupRanks>{{0, 4}, {4, 2}, {6, 1}}));
  EXPECT_EQ(layout.placement.degrees(), (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(layout.placement.role(7), Role::spare);
  EXPECT_NE(refusal(facts(8), {.verifier_tp = {4, 4, 1}, .verifier_groups = {}, .drafters = {}})
                .find("3 verifier groups of degree 4, 4, 1 need 9 ranks, but the job has 8"),
            std::string::npos);
  EXPECT_NE(refusal(facts(8), {.verifier_tp = {2, 1}, .verifier_groups = 3, .drafters = {}})
                .find("layout.verifier_groups: 3, but layout.verifier_tp names the degrees of 2"),
            std::string::npos);
}

TEST(Layout, DraftersAreTheLastRanks) {
  const Layout layout =
      plan_layout(facts(6), {.verifier_tp = {2}, .verifier_groups = {}, .drafters = 2});
  EXPECT_EQ(layout.groups(), 2);
  EXPECT_EQ(roles(layout),
            (std::vector<Role>{Role::verifier, Role::verifier_member, Role::verifier,
                               Role::verifier_member, Role::drafter, Role::drafter}));
  EXPECT_EQ(layout.placement.drafters, (std::vector<DrafterPlace>{{4, 0}, {5, 0}}));
  EXPECT_EQ(layout.placement.group(4), -1);
}

TEST(Layout, SaysWhySoManyRanksDraft) {
  LayoutSettings settings;
  settings.drafters = 1;
  EXPECT_TRUE(mentions(plan_layout(facts(3), settings), "1 drafter rank from layout.drafters"));
  settings.drafters_reason = "they pay";
  EXPECT_TRUE(mentions(plan_layout(facts(3), settings),
                       "1 drafter rank: they pay (override: layout.drafters)"));
  EXPECT_FALSE(mentions(
      plan_layout(facts(3), {.verifier_tp = {}, .verifier_groups = {}, .drafters = 0}), "drafter"));
}

TEST(KvPlan, AFullBatchOrHalfTheMemoryOrTheSetting) {
  KvFacts f{
      .block_bytes = 1000, .memory_per_rank = 1'000'000, .max_batch = 8, .blocks_per_request = 10};
  EXPECT_EQ(plan_kv(f, {}).blocks, 80);
  f.memory_per_rank = 100'000;
  EXPECT_EQ(plan_kv(f, {}).blocks, 50);
  EXPECT_EQ(plan_kv(f, 20'500).blocks, 20);
  EXPECT_THROW((void)plan_kv(f, 9'999), UsageError);
}

}  // namespace
}  // namespace paceline::policy
