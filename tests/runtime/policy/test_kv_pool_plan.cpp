#include "runtime/policy/place/kv_pool_plan.hpp"

#include <gtest/gtest.h>

#include "runtime/core/error.hpp"

namespace paceline::policy {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST(KvPoolPlan, HalfOfWhatIsLeftOrAllThatMayBeWanted) {
  KvPoolFacts facts{
      .host_memory = 20 * kGiB, .taken = 8 * kGiB, .block_bytes = 1 << 20, .most = 100 * kGiB};
  EXPECT_EQ(plan_kv_pool(facts, {}).memory, 6 * kGiB);
  facts.most = 2 * kGiB;
  EXPECT_EQ(plan_kv_pool(facts, {}).memory, 2 * kGiB);
  facts.taken = 21 * kGiB;
  EXPECT_EQ(plan_kv_pool(facts, {}).memory, 0U) << "there is nothing left, and no pool";
  facts.host_memory = 0;
  EXPECT_EQ(plan_kv_pool(facts, {}).memory, 2 * kGiB) << "nobody knows what there is";
}

TEST(KvPoolPlan, TheSettingHoldsAndIsWarnedOf) {
  const KvPoolFacts facts{
      .host_memory = 20 * kGiB, .taken = 8 * kGiB, .block_bytes = 1 << 20, .most = 100 * kGiB};
  const KvPoolPlan plan = plan_kv_pool(facts, {.memory = 10 * kGiB, .disk = true});
  EXPECT_EQ(plan.memory, 10 * kGiB);
  EXPECT_EQ(plan.explanation.find("warning"), std::string::npos);
  EXPECT_NE(plan_kv_pool(facts, {.memory = 13 * kGiB})
                .explanation.find("warning: weights and KV "
                                  "leave 12.00 GiB"),
            std::string::npos);
  EXPECT_EQ(plan_kv_pool(facts, {.memory = 0}).memory, 0U);
}

TEST(KvPoolPlan, WhatCannotWorkIsTold) {
  KvPoolFacts facts{.host_memory = 20 * kGiB, .block_bytes = 4 << 20, .most = 100 * kGiB};
  EXPECT_THROW((void)plan_kv_pool(facts, {.memory = 1 << 20}), UsageError);
  EXPECT_THROW((void)plan_kv_pool(facts, {.memory = 0, .disk = true}), UsageError);
  facts.taken = 20 * kGiB;
  EXPECT_THROW((void)plan_kv_pool(facts, {.memory = {}, .disk = true}), UsageError);
}

}  // namespace
}  // namespace paceline::policy
