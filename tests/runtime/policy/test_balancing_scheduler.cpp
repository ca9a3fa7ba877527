// Leases by chunk: who gets one, where it ends, and what becomes of the request then.
#include "runtime/policy/schedule/balancing_scheduler.hpp"

#include <gtest/gtest.h>
#include <array>

#include "tests/runtime/policy/lease_next.hpp"

namespace paceline::policy {
namespace {

/// A prompt of so many tokens, of which a response has at most `most`; 0: what all have.
Prompt of(std::size_t tokens, std::int32_t most = 0) {
  Prompt prompt;
  prompt.tokens.resize(tokens);
  if (most > 0) prompt.sampling.max_tokens = most;
  return prompt;
}

TEST(LeaseTerms, AChunkTakesTheBlocksThatItMayFill) {
  const LeaseTerms terms{.chunk = 32, .max_tokens = 100, .context = 1000};
  EXPECT_EQ(terms.until(of(16), 0), 32U);
  EXPECT_EQ(terms.until(of(16), 32), 64U);
  EXPECT_EQ(terms.until(of(16), 64), 96U);
  EXPECT_EQ(terms.until(of(16), 68), kToTheEnd) << "100 is the end";
  EXPECT_EQ(terms.blocks(of(16), 0, 32), 3 + 1);
  EXPECT_EQ(terms.blocks(of(17), 0, 32), 4 + 1);
  EXPECT_EQ(terms.blocks(of(16), 64, kToTheEnd), 8 + 1) << "116 positions";
  EXPECT_EQ((LeaseTerms{.max_tokens = 100}.until(of(16), 7)), kToTheEnd);
  EXPECT_EQ((LeaseTerms{.max_tokens = 100, .context = 64}.blocks(of(32), 0, kToTheEnd)), 4 + 1);
  EXPECT_EQ((LeaseTerms{.growth = 16, .max_tokens = 100}.blocks(of(16), 0, kToTheEnd)), 2 + 1);
}

TEST(LeaseTerms, ALineMayHaveItsOwnLongestResponse) {
  const LeaseTerms terms{.chunk = 32, .max_tokens = 100, .context = 1000};
  EXPECT_EQ(terms.until(of(16, 40), 0), 32U);
  EXPECT_EQ(terms.until(of(16, 40), 32), kToTheEnd);
  EXPECT_EQ(terms.until(of(16, 300), 68), 100U);
  EXPECT_EQ(terms.blocks(of(16, 40), 32, kToTheEnd), 4 + 1) << "56 positions";
  EXPECT_EQ(terms.blocks(of(16, 300), 32, kToTheEnd), 20 + 1) << "316 positions";
}

TEST(LeaseTerms, AChunkGrowsWithItsRequest) {
  const LeaseTerms terms{.chunk = 64, .chunk_share = 0.125, .max_tokens = 4096};
  EXPECT_EQ(terms.until(of(16), 0), 64U);
  EXPECT_EQ(terms.until(of(512), 64), 64U + 72U);
  EXPECT_EQ(terms.until(of(512), 3000), 3000U + 439U);
  EXPECT_EQ(terms.until(of(512), 3700), kToTheEnd);
}

/// One group of two, with prompts of 16 tokens: a chunk of 16 takes 3 blocks, and 1 more each time.
struct Chunks : ::testing::Test {
  Chunks() { prompts[0].tokens.resize(16); }
  static std::vector<Trajectory> work() {
    std::vector<Trajectory> work(6);
    for (std::uint32_t i = 0; i < 6; ++i) work[i].id = {0, i};
    return work;
  }
  BalancingScheduler scheduler{{.terms = {.chunk = 16, .max_tokens = 64}, .shares = false}};
  Placement placement{.ranks = 2, .groups = {{0, 1}, {1, 1}}, .drafters = {}};
  RequestTable table = test::first_come(work());
  std::vector<Prompt> prompts{1};
  GroupState group{.ranks = {0, 1}, .room = 4, .kv_room = 7};
  RunState run{{group, {.ranks = {1, 1}, .room = 4, .kv_room = 7}}, table, prompts, placement};
};

TEST_F(Chunks, AsManyAreLeasedAsTheNextChunkHasRoomFor) {
  EXPECT_EQ(scheduler.lease(run, group), (LeaseOrder{{0, 0}, 16}));
  (void)test::lease_next(table, 0);
  group.kv_room = 3;
  EXPECT_EQ(scheduler.lease(run, group), (LeaseOrder{{0, 1}, 16}));
  group.kv_room = 2;
  EXPECT_FALSE(scheduler.lease(run, group)) << "there are too few blocks";
  group.kv_room = 100;
  group.room = 0;
  EXPECT_FALSE(scheduler.lease(run, group)) << "the batch is full";
}

TEST_F(Chunks, WhoIsAloneHasRoom) {
  group.kv_room = 0;
  EXPECT_TRUE(scheduler.lease(run, group)) << "what takes the blocks is about to go";
  (void)test::lease_next(table, 0);
  table.grew(std::array{RequestLength{{0, 0}, 16}});
  EXPECT_TRUE(scheduler.at_end(run, group, {0, 0}).renewed);
}

TEST_F(Chunks, ALeaseIsRenewedWhereThereIsRoomAndElseTheRequestWaits) {
  for (int i = 0; i < 2; ++i) (void)table.lease({0, static_cast<std::uint32_t>(i)}, 0, 16);
  table.grew(std::array{RequestLength{{0, 0}, 16}});
  group.kv_room = 1;
  EXPECT_EQ(scheduler.at_end(run, group, {0, 0}).renewed, 32U);
  group.kv_room = 0;
  EXPECT_EQ(scheduler.at_end(run, group, {0, 0}), (LeaseEnd{{}, kToTable}));
}

TEST_F(Chunks, ARequestGivesWayToOneThatGoesBeforeIt) {
  for (int i = 0; i < 2; ++i) (void)table.lease({0, static_cast<std::uint32_t>(i)}, 0, 16);
  EXPECT_TRUE(scheduler.at_end(run, group, {0, 1}).renewed);
  Trajectory back;
  back.id = {0, 0};
  table.returned(back, {table.move({0, 0}, kToTable), {0, 1}, 32, {}});
  EXPECT_EQ(scheduler.at_end(run, group, {0, 1}), (LeaseEnd{{}, kToTable}));
}

TEST_F(Chunks, BusyGroupsGetRequestsAsFarAsTheirMemoryGoes) {
  for (std::uint32_t i = 0; i < 6; ++i) (void)table.lease({0, i}, i < 5 ? 0 : 1, 16);
  run.groups[0].active = 5;
  run.groups[1].active = 1;
  const auto moved = [&](int kv_room) {
    run.groups[1].kv_room = kv_room;
    BalancingScheduler looks{{.terms = {.chunk = 16, .max_tokens = 64}}};
    EXPECT_TRUE(looks.moves(run).empty()) << "not in each report";
    return looks.moves(run).size();
  };
  EXPECT_EQ(moved(6), 2U) << "three each";
  EXPECT_EQ(moved(5), 1U);
  EXPECT_EQ(moved(2), 0U);
  (void)table.move({0, 0}, 1);
  EXPECT_EQ(moved(6), 1U) << "one is on its way";
  EXPECT_EQ(moved(5), 0U);
}

}  // namespace
}  // namespace paceline::policy
