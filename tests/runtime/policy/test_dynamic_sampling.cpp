// Which prompts count depends on rewards alone; few begin that are not needed.
#include "runtime/policy/schedule/dynamic_sampling.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace paceline::policy {
namespace {

using Prompts = std::vector<std::uint32_t>;

Prompts in_order(std::uint32_t prompts) {
  Prompts order(prompts);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

/// Gives the two responses of a prompt these rewards.
void give(DynamicSampling& sampling, std::uint32_t prompt, float a, float b) {
  sampling.scored({{prompt, 0}, a});
  sampling.scored({{prompt, 1}, b});
}

TEST(DynamicSampling, KeepsTheFirstInOrderWhoeverIsFirst) {
  DynamicSampling sampling(in_order(6), Prompts(6, 2), 2);
  give(sampling, 3, 0, 1);
  give(sampling, 2, 1, 0);
  EXPECT_FALSE(sampling.over()) << "0 and 1 may be mixed";
  EXPECT_TRUE(sampling.outcome().kept.empty());
  EXPECT_TRUE(sampling.may_count(3));
  EXPECT_FALSE(sampling.may_count(4)) << "two before it are mixed";
  give(sampling, 1, 1, 0);
  EXPECT_FALSE(sampling.may_count(3));
  EXPECT_TRUE(sampling.may_count(2));
  give(sampling, 0, 1, 1);
  EXPECT_TRUE(sampling.enough());
  EXPECT_TRUE(sampling.over());
  EXPECT_EQ(sampling.outcome().kept, (Prompts{1, 2}));
  EXPECT_EQ(sampling.outcome().dropped, 1U);
}

TEST(DynamicSampling, DecidesInTheOrderThatItIsGiven) {
  DynamicSampling sampling({4, 2, 0, 1, 3}, Prompts(5, 2), 2);
  give(sampling, 0, 0, 1);
  give(sampling, 2, 0, 0);
  EXPECT_FALSE(sampling.over());
  give(sampling, 4, 0, 1);
  EXPECT_TRUE(sampling.enough());
  EXPECT_EQ(sampling.outcome().kept, (Prompts{0, 4})) << "by index";
}

TEST(DynamicSampling, EndsWhereNoPromptIsLeft) {
  DynamicSampling sampling(in_order(3), Prompts{2, 1, 2}, 3);
  give(sampling, 0, 1, 0);
  sampling.scored({{1, 0}, 1});
  EXPECT_FALSE(sampling.over());
  sampling.scored({{2, 0}, 1});
  sampling.scored({{2, 0}, 0});  // the same again, and others that are none
  sampling.scored({{2, 2}, 0});
  sampling.scored({{3, 0}, 0});
  EXPECT_FALSE(sampling.over());
  sampling.scored({{2, 1}, NAN});
  EXPECT_TRUE(sampling.over());
  EXPECT_FALSE(sampling.enough());
  EXPECT_EQ(sampling.outcome().kept, Prompts{0});
  EXPECT_EQ(sampling.outcome().dropped, 2U) << "one response is never mixed";
  EXPECT_EQ(sampling.outcome().lacking, 1U);
}

TEST(DynamicSampling, BeginsAsManyAsAreExpectedToBeNeeded) {
  DynamicSampling sampling(in_order(100), Prompts(100, 2), 8);
  const auto begun = [&] {
    std::uint32_t n = 0;
    while (n < 100 && sampling.may_begin(n)) ++n;
    return n;
  };
  EXPECT_EQ(begun(), 16U) << "a half is taken to be mixed";
  give(sampling, 0, 1, 1);
  EXPECT_EQ(begun(), 1 + 24U) << "8 * 3";
  give(sampling, 1, 1, 0);
  EXPECT_EQ(begun(), 25U) << "7 * 4 / 2 = 14 may be under way, 23 are";
  for (std::uint32_t p = 2; p < 8; ++p) give(sampling, p, 1, 0);
  EXPECT_EQ(begun(), 25U);
  give(sampling, 8, 1, 0);
  EXPECT_TRUE(sampling.enough());
  EXPECT_EQ(begun(), 25U) << "what may begin stays so";
  EXPECT_FALSE(sampling.may_count(9));
}

/// Random rewards, in random orders among the prompts that may begin.
TEST(DynamicSampling, KeepsTheSameInEveryOrderAndAfterEveryStop) {
  std::mt19937 random(5);
  for (int run = 0; run < 300; ++run) {
    const std::uint32_t prompts = 1 + random() % 12;
    const std::uint32_t samples = 1 + random() % 3;
    const std::size_t enough = 1 + random() % 5;
    const std::uint32_t wide = 1 + random() % 3;
    std::vector<Reward> rewards;
    for (std::uint32_t p = 0; p < prompts; ++p) {
      for (std::uint32_t s = 0; s < samples; ++s) {
        const bool none = random() % 20 == 0;
        rewards.push_back({{p, s}, none ? NAN : static_cast<float>(random() % wide)});
      }
    }
    Prompts order = in_order(prompts);
    if (run % 2 == 1) std::shuffle(order.begin(), order.end(), random);
    // By definition.
    Prompts kept;
    std::size_t dropped = 0;
    for (const std::uint32_t p : order) {
      if (kept.size() == enough) break;
      const auto first = rewards.begin() + p * samples;
      const bool mixed =
          std::none_of(first, first + samples, [](auto& r) { return std::isnan(r.value); }) &&
          std::any_of(first, first + samples, [&](auto& r) { return r.value != first->value; });
      if (mixed) {
        kept.push_back(p);
      } else {
        ++dropped;
      }
    }
    std::sort(kept.begin(), kept.end());
    // An earlier attempt has told some, of any prompts; the rest comes as prompts may begin.
    DynamicSampling sampling(order, Prompts(prompts, samples), enough);
    std::shuffle(rewards.begin(), rewards.end(), random);
    for (std::size_t told = random() % 4 == 0 ? random() % rewards.size() : 0; told > 0; --told) {
      sampling.scored(rewards.back());
      rewards.pop_back();
    }
    while (!sampling.over()) {
      const auto next = std::find_if(rewards.begin(), rewards.end(), [&](const Reward& r) {
        return sampling.may_begin(r.id.prompt) && sampling.may_count(r.id.prompt);
      });
      ASSERT_NE(next, rewards.end()) << "nothing may begin, and not all is decided";
      sampling.scored(*next);
      rewards.erase(next);
    }
    ASSERT_EQ(sampling.outcome().kept, kept) << run;
    ASSERT_EQ(sampling.outcome().dropped, dropped) << run;
    ASSERT_EQ(sampling.enough(), kept.size() == enough);
  }
}

}  // namespace
}  // namespace paceline::policy
