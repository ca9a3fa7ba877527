#include "runtime/policy/plan/draft_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace paceline::policy {
namespace {

using Change = DraftMemoryChange;

/// A pool of 100 blocks, 30 more while it is expanded.
DraftMemoryState state(bool expanded, std::int32_t free) {
  return {.expanded = expanded, .blocks = 100, .gain = 30, .free = free};
}

/// Steps until it wants a change; `most` where it does not.
int steps_until(DraftMemoryPolicy& policy, const DraftMemoryState& s, Change change, int most) {
  for (int step = 1; step < most; ++step) {
    const Change decided = policy.decide(s);
    if (decided == Change::none) continue;
    EXPECT_EQ(decided, change);
    return step;
  }
  return most;
}

TEST(ElasticDraftMemory, ExpandsWhenKvIsShortForLongAndNothingIsDrafted) {
  ElasticDraftMemory policy;
  EXPECT_EQ(steps_until(policy, state(false, 9), Change::expand, 100), kPersist);
  EXPECT_EQ(steps_until(policy, state(false, 10), Change::expand, 100), 100);  // not below 10 %
  DraftMemoryState drafts = state(false, 0);
  drafts.speculates = true;
  EXPECT_EQ(steps_until(policy, drafts, Change::expand, 100), 100);
}

TEST(ElasticDraftMemory, ContractsWhenNobodyWaitsAndAsMuchIsFree) {
  ElasticDraftMemory policy;
  EXPECT_EQ(steps_until(policy, state(true, 41), Change::contract, 100), kPersist);
  EXPECT_EQ(steps_until(policy, state(true, 40), Change::contract, 100), 100);
  DraftMemoryState queue = state(true, 100);
  queue.waiting = 1;
  EXPECT_EQ(steps_until(policy, queue, Change::contract, 100), 100);
}

// A lease takes all its blocks at once.
TEST(ElasticDraftMemory, KvIsShortWhereNoFurtherRequestFits) {
  ElasticDraftMemory policy;
  DraftMemoryState s = state(false, 14);
  s.request = 14.5;
  EXPECT_EQ(steps_until(policy, s, Change::expand, 100), kPersist);
  s = state(true, 44);
  s.request = 14.5;
  EXPECT_EQ(steps_until(policy, s, Change::contract, 100), 100);
  s.free = 45;
  EXPECT_EQ(steps_until(policy, s, Change::contract, 100), kPersist);
}

TEST(ElasticDraftMemory, AStepWithRoomTakesBackOneWithout) {
  ElasticDraftMemory policy;
  for (int step = 0; step < 1000; ++step)  // two of three with room
    EXPECT_EQ(policy.decide(state(false, step % 3 == 0 ? 0 : 20)), Change::none);
  int steps = 0;  // one of three
  while (policy.decide(state(false, steps++ % 3 == 0 ? 20 : 0)) == Change::none)
    ASSERT_LT(steps, 200);
  EXPECT_NEAR(steps, 3 * kPersist, 4);
}

TEST(ElasticDraftMemory, ADraftBeginsAnew) {
  ElasticDraftMemory policy;
  EXPECT_EQ(steps_until(policy, state(false, 0), Change::expand, kPersist), kPersist);
  DraftMemoryState drafts = state(false, 0);
  drafts.speculates = true;
  EXPECT_EQ(policy.decide(drafts), Change::none);
  EXPECT_EQ(steps_until(policy, state(false, 0), Change::expand, 100), kPersist);
}

// A load that hovers about the threshold must not have memory go to and fro.
TEST(ElasticDraftMemory, HoldsStillUnderALoadThatHovers) {
  constexpr int kSteps = 20'000;
  int changes = 0;
  int would = 0;  // by the thresholds alone
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    ElasticDraftMemory policy;
    bool expanded = false;
    bool other = false;
    for (int step = 0; step < kSteps; ++step) {
      const std::int32_t base = 7 + static_cast<std::int32_t>(random() % 7);
      if (other ? base > 10 : base < 10) {
        ++would;
        other = !other;
      }
      const Change change = policy.decide(state(expanded, expanded ? base + 30 : base));
      if (change == Change::none) continue;
      ++changes;
      expanded = change == Change::expand;
    }
  }
  EXPECT_LT(changes, 20 * kSteps / 5000);
  EXPECT_GT(would, 20 * kSteps / 10);
}

TEST(ElasticDraftMemory, FollowsALoadThatRisesAndFalls) {
  ElasticDraftMemory policy;
  bool expanded = false;
  std::vector<Change> changes;
  for (int step = 0; step < 4000; ++step) {
    const std::int32_t used = step % 2000 < 1000 ? 95 : 20;
    DraftMemoryState s = state(expanded, (expanded ? 130 : 100) - used);
    s.speculates = !expanded && used < 50;
    const Change change = policy.decide(s);
    if (change == Change::none) continue;
    changes.push_back(change);
    expanded = change == Change::expand;
  }
  EXPECT_EQ(changes,
            (std::vector{Change::expand, Change::contract, Change::expand, Change::contract}));
}

}  // namespace
}  // namespace paceline::policy
