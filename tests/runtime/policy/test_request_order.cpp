// In which order requests are leased, by hand-made cases and by a small world in which groups run.
#include "runtime/policy/schedule/request_order.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace paceline::policy {
namespace {

constexpr std::uint32_t kMaxTokens = 100;
using Ids = std::vector<RequestId>;

void add_all(RequestOrder& order, std::uint32_t prompts, std::uint32_t samples) {
  for (std::uint32_t p = 0; p < prompts; ++p) {
    for (std::uint32_t s = 0; s < samples; ++s) order.add({p, s}, 0);
  }
}

/// Leases so many to a group.
Ids take(RequestOrder& order, int count, const Slot& slot = {}) {
  Ids ids;
  for (; count > 0; --count) {
    const auto next = order.next(slot);
    if (!next) break;
    ids.push_back(*next);
    order.remove(*next);
  }
  return ids;
}

TEST(RequestOrder, FirstComeIsAsTheyCame) {
  FirstCome order;
  add_all(order, 2, 2);
  EXPECT_EQ(take(order, 2), (Ids{{0, 0}, {0, 1}}));
  order.add({0, 1}, 30);  // back from its first chunk
  EXPECT_EQ(order.upcoming(2), (Ids{{0, 1}, {1, 0}}));
  EXPECT_FALSE(order.displaces({0, 0}, 50, {})) << "it came before";
  EXPECT_EQ(take(order, 1), (Ids{{0, 1}}));
  EXPECT_FALSE(order.displaces({0, 1}, 60, {}));
  order.add({0, 0}, 50);
  EXPECT_TRUE(order.displaces({0, 1}, 60, {}));
  EXPECT_EQ(take(order, 9).size(), 3U);
  EXPECT_FALSE(order.next({}));
  EXPECT_THROW(order.remove({0, 0}), std::logic_error);
  order.add({0, 0}, 60);
  EXPECT_THROW(order.add({0, 0}, 60), std::logic_error);
}

TEST(RequestOrder, WithoutContextARequestQueuesUpAgain) {
  QueueAgain order;
  add_all(order, 1, 3);
  EXPECT_EQ(take(order, 1), (Ids{{0, 0}}));
  EXPECT_TRUE(order.displaces({0, 0}, 8, {}));
  EXPECT_FALSE(order.displaces({0, 0}, 8, {}, 2)) << "others have made room for both that wait";
  order.add({0, 0}, 8);
  EXPECT_EQ(take(order, 3), (Ids{{0, 1}, {0, 2}, {0, 0}}));
  EXPECT_FALSE(order.displaces({0, 0}, 16, {})) << "nobody waits";
}

TEST(RequestOrder, GroupsAreDealtTheirPrompts) {
  GroupStatic order;
  add_all(order, 5, 2);
  EXPECT_EQ(take(order, 9, {1, 3}), (Ids{{2, 0}, {2, 1}, {3, 0}, {3, 1}}));
  EXPECT_EQ(take(order, 9, {0, 3}), (Ids{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
  EXPECT_FALSE(order.next({0, 3})) << "the rest is another's";
  EXPECT_FALSE(order.displaces({1, 0}, 3, {0, 3}));
  EXPECT_EQ(take(order, 9, {2, 3}), (Ids{{4, 0}, {4, 1}}));
}

TEST(RequestOrder, AnInstanceDealsItsPromptsRequestsToItsGroups) {
  GroupStatic order(2);
  add_all(order, 4, 3);
  EXPECT_EQ(take(order, 9, {0, 4}), (Ids{{0, 0}, {0, 2}, {1, 1}}));
  EXPECT_EQ(take(order, 9, {3, 4}), (Ids{{2, 1}, {3, 0}, {3, 2}}));
  EXPECT_FALSE(order.next({3, 4})) << "the rest is others'";
  EXPECT_EQ(take(order, 9, {1, 4}), (Ids{{0, 1}, {1, 0}, {1, 2}}));
  EXPECT_EQ(take(order, 9, {2, 4}), (Ids{{2, 0}, {2, 2}, {3, 1}}));
}

TEST(RequestOrder, EveryPromptIsSomeGroupsWhateverTheirNumber) {
  for (const std::uint32_t prompts : {1U, 2U, 7U, 64U}) {
    for (int groups = 1; groups < 12; ++groups) {
      GroupStatic order;
      add_all(order, prompts, 1);
      std::size_t most = 0;
      std::size_t all = 0;
      for (int g = 0; g < groups; ++g) {
        const std::size_t dealt = take(order, 1000, {g, groups}).size();
        most = std::max(most, dealt);
        all += dealt;
      }
      EXPECT_EQ(all, prompts);
      EXPECT_LE(most, (prompts + groups - 1) / groups) << prompts << " to " << groups;
    }
  }
}

TEST(RequestOrder, TheOracleTakesTheLongest) {
  LongestFirst order({{{0, 0}, 10}, {{0, 1}, 90}, {{1, 0}, 50}}, kMaxTokens);
  add_all(order, 2, 2);
  EXPECT_EQ(take(order, 4), (Ids{{1, 1}, {0, 1}, {1, 0}, {0, 0}}))
      << "what nobody knows is longest";
}

TEST(RequestOrder, APromptMayHaveItsOwnLongestResponse) {
  std::vector<Prompt> prompts(3);
  prompts[0].sampling.max_tokens = 7;
  prompts[2].sampling.max_tokens = 3 * kMaxTokens;
  ContextAware context(kMaxTokens, 1, prompts);
  EXPECT_EQ(context.estimate(0), 7U);
  EXPECT_EQ(context.estimate(1), kMaxTokens);
  EXPECT_EQ(context.estimate(2), 3U * kMaxTokens);
  LongestFirst oracle({{{0, 0}, 10}}, kMaxTokens, prompts);
  add_all(oracle, 3, 2);
  EXPECT_EQ(take(oracle, 6), (Ids{{2, 0}, {2, 1}, {1, 0}, {1, 1}, {0, 0}, {0, 1}}));
}

// Seer, Algorithm 1.
TEST(RequestOrder, ProbesGoFirstAndThenTheSiblingsOfTheLongest) {
  ContextAware order(kMaxTokens, 1);
  add_all(order, 3, 3);
  EXPECT_EQ(take(order, 2), (Ids{{0, 0}, {1, 0}}));
  order.add({0, 0}, 16);
  EXPECT_EQ(take(order, 1), (Ids{{2, 0}})) << "the one with fewest tokens";
  EXPECT_FALSE(order.displaces({1, 0}, 16, {})) << "as many";
  EXPECT_TRUE(order.displaces({1, 0}, 17, {}));
  EXPECT_TRUE(order.displaces({2, 1}, 0, {})) << "a probe goes before all that are none";
  EXPECT_EQ(take(order, 1), (Ids{{0, 0}}));
  order.ended({1, 0}, 70);
  order.ended({0, 0}, 20);
  EXPECT_EQ(order.estimate(0), 20U);
  EXPECT_EQ(order.estimate(2), kMaxTokens) << "none has ended";
  EXPECT_EQ(order.upcoming(9), (Ids{{2, 1}, {2, 2}, {1, 1}, {1, 2}, {0, 1}, {0, 2}}));
  order.ended({2, 0}, 30);
  EXPECT_EQ(order.upcoming(3), (Ids{{1, 1}, {1, 2}, {2, 1}}));
  EXPECT_FALSE(order.displaces({1, 1}, 10, {}));
  EXPECT_TRUE(order.displaces({0, 1}, 10, {}));
  EXPECT_FALSE(order.displaces({0, 1}, 80, {})) << "it has outgrown its siblings, and all others";
}

TEST(RequestOrder, NoPromptStarves) {
  ContextAware order(kMaxTokens, 1);
  add_all(order, 2, 400);
  take(order, 2);
  order.ended({0, 0}, 90);
  order.ended({1, 0}, 10);
  int of_the_short = 0;
  for (const RequestId id : take(order, 300)) of_the_short += id.prompt == 1 ? 1 : 0;
  EXPECT_GT(of_the_short, 5) << "about one in 16";
  EXPECT_LT(of_the_short, 50);
}

TEST(RequestOrder, TheStarvedPromptIsThatWithFewestLeases) {
  std::mt19937 random(7);
  ContextAware order(kMaxTokens, 3);
  std::map<std::uint32_t, int> leases;  // of each prompt
  Ids running;
  std::map<RequestId, std::uint32_t> tokens;
  add_all(order, 12, 6);
  int starved = 0;
  for (std::size_t left = 12 * 6; left > 0;) {
    const Ids waiting = order.upcoming(left);
    if (!waiting.empty() && (running.size() < 5 || random() % 2 == 0)) {
      // The first in order of those whose prompts had fewest.
      const RequestId least = *std::min_element(
          waiting.begin(), waiting.end(),
          [&](RequestId a, RequestId b) { return leases[a.prompt] < leases[b.prompt]; });
      const RequestId next = *order.next({});
      if (next != waiting.front()) {
        EXPECT_EQ(next, least);
        ++starved;
      }
      order.remove(next);
      ++leases[next.prompt];
      running.push_back(next);
      continue;
    }
    const auto at = running.begin() + random() % running.size();
    const RequestId id = *at;
    running.erase(at);
    tokens[id] += 1 + random() % 20;
    if (random() % 3 == 0) {
      order.ended(id, tokens[id]);
      --left;
    } else {
      order.add(id, tokens[id]);
    }
  }
  EXPECT_GT(starved, 3);
}

/// Groups of one slot each run requests in chunks until all have ended. Returns the chunks that
/// takes. Lengths are alike within a prompt.
int makespan(RequestOrder& order, const std::map<RequestId, std::uint32_t>& lengths, int slots) {
  constexpr std::uint32_t kChunk = 8;
  for (const auto& [id, length] : lengths) order.add(id, 0);
  std::map<RequestId, std::uint32_t> tokens;
  std::vector<std::optional<RequestId>> running(static_cast<std::size_t>(slots));
  std::size_t ended = 0;
  int time = 0;
  for (; ended < lengths.size(); ++time) {
    for (int s = 0; s < slots; ++s) {
      std::optional<RequestId>& r = running[static_cast<std::size_t>(s)];
      const Slot slot{s, slots};
      if (r && order.displaces(*r, tokens[*r], slot)) order.add(*std::exchange(r, {}), tokens[*r]);
      if (!r && (r = order.next(slot))) order.remove(*r);
      if (!r) continue;
      std::uint32_t& has = tokens[*r];
      has = std::min(has + kChunk, lengths.at(*r));
      if (has < lengths.at(*r)) continue;
      order.ended(*r, has);
      ++ended;
      r.reset();
    }
  }
  return time;
}

TEST(RequestOrder, ContextComesNearTheOracle) {
  fmt::print("chunks until all have ended, by seed\n{:>6}{:>8}{:>12}{:>9}{:>9}{:>8}\n", "seed",
             "group", "no context", "fcfs", "context", "oracle");
  int context_sum = 0;
  int oracle_sum = 0;
  int fcfs_sum = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    std::mt19937_64 random(seed);
    std::lognormal_distribution<double> of_prompt(5.0, 0.9);
    std::lognormal_distribution<double> of_sibling(0.0, 0.3);
    std::map<RequestId, std::uint32_t> lengths;
    for (std::uint32_t p = 0; p < 40; ++p) {
      const double typical = of_prompt(random);
      for (std::uint32_t s = 0; s < 8; ++s)
        lengths[{p, s}] =
            static_cast<std::uint32_t>(std::clamp(typical * of_sibling(random), 4.0, 2000.0));
    }
    GroupStatic group;
    QueueAgain no_context;
    FirstCome fcfs;
    ContextAware context(2000, seed);
    LongestFirst oracle(lengths, 2000);
    const int slots = 16;
    const int by_fcfs = makespan(fcfs, lengths, slots);
    const int by_context = makespan(context, lengths, slots);
    const int by_oracle = makespan(oracle, lengths, slots);
    fmt::print("{:>6}{:>8}{:>12}{:>9}{:>9}{:>8}\n", seed, makespan(group, lengths, slots),
               makespan(no_context, lengths, slots), by_fcfs, by_context, by_oracle);
    context_sum += by_context;
    oracle_sum += by_oracle;
    fcfs_sum += by_fcfs;
  }
  EXPECT_LT(context_sum, fcfs_sum);
  EXPECT_GT(oracle_sum, 0.9 * context_sum) << "95 % in the paper's figure 10";
}

}  // namespace
}  // namespace paceline::policy
