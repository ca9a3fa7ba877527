#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/leases.hpp"

namespace paceline::policy {
namespace {

Placement example() {
  return {.epoch = 3, .ranks = 8, .groups = {{0, 4}, {4, 2}}, .drafters = {{7, 2}}};
}

TEST(Placement, SaysWhatEveryRankIs) {
  const Placement p = example();
  const Role roles[] = {Role::verifier,        Role::verifier_member, Role::verifier_member,
                        Role::verifier_member, Role::verifier,        Role::verifier_member,
                        Role::spare,           Role::drafter};
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(p.role(rank), roles[rank]) << rank;
  EXPECT_EQ(p.group(3), 0);
  EXPECT_EQ(p.group(5), 1);
  EXPECT_EQ(p.group(6), -1);
  EXPECT_EQ(p.least_tp(), 2);
  EXPECT_EQ(p.degrees(), (std::vector<int>{2, 4}));
}

TEST(Placement, ARankStaysWhereItsRoleAndItsWholeGroupDo) {
  const Placement before = example();
  Placement after = before;
  after.groups = {{0, 2}, {4, 2}};
  for (const int rank : {0, 1, 2, 3}) EXPECT_FALSE(stays(rank, before, after)) << rank;
  for (const int rank : {4, 5, 6, 7}) EXPECT_TRUE(stays(rank, before, after)) << rank;
  ++after.drafters.front().since;  // it is another drafter
  EXPECT_FALSE(stays(7, before, after));
}

TEST(Placement, SiblingsHaveOneDrafterWhereItLearnsFromThemAndElseAreSpread) {
  EXPECT_EQ(drafter_for({5, 0}, DrafterDeal::by_prompt, {}), nullptr);
  EXPECT_EQ(drafter_for({5, 0}, DrafterDeal::by_request, {}), nullptr);
  const std::vector<DrafterPlace> three = {{3, 0}, {7, 2}, {8, 2}};
  for (const std::uint32_t sample : {0U, 1U, 2U}) {
    EXPECT_EQ(drafter_for({4, sample}, DrafterDeal::by_prompt, three)->rank, 7);
    EXPECT_EQ(drafter_for({5, sample}, DrafterDeal::by_prompt, three)->rank, 8);
  }
  // Each rank drafts for as many of each prompt's requests, and prompts of one request are spread.
  for (const std::uint32_t prompt : {0U, 1U, 0xFFFFFFFFU}) {
    std::map<int, int> requests;
    for (std::uint32_t sample = 0; sample < 6; ++sample)
      ++requests[drafter_for({prompt, sample}, DrafterDeal::by_request, three)->rank];
    EXPECT_EQ(requests, (std::map<int, int>{{3, 2}, {7, 2}, {8, 2}}));
  }
  EXPECT_NE(drafter_for({0, 0}, DrafterDeal::by_request, three),
            drafter_for({1, 0}, DrafterDeal::by_request, three));
}

TEST(Leases, FillTheRoomWhileThereIsPlentyAndShareTheEnd) {
  EXPECT_EQ(leases_due({.room = 3, .held = 0, .unfinished = 1000, .share = 0.5}), 3);
  EXPECT_EQ(leases_due({.room = -1, .held = 0, .unfinished = 1000, .share = 0.5}), 0);
  EXPECT_EQ(leases_due({.room = 64, .held = 0, .unfinished = 10, .share = 0.25}), 3);
  EXPECT_EQ(leases_due({.room = 64, .held = 2, .unfinished = 6, .share = 0.5}), 1);
  EXPECT_EQ(leases_due({.room = 64, .held = 4, .unfinished = 6, .share = 0.5}), 0);
  EXPECT_EQ(leases_due({.room = 64, .held = 0, .unfinished = 12, .share = 1.0 / 3}), 4);
}

}  // namespace
}  // namespace paceline::policy
