#include <gtest/gtest.h>

#include <random>

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

/// What a message over a network would do to a value.
template <class T>
T sent(const T& value) {
  WireWriter writer;
  put(writer, value);
  const std::vector<std::byte> bytes = writer.take();
  WireReader reader(bytes);
  T received;
  get(reader, received);
  return received;
}

void fetch(const DraftStore& server, DraftStore& client, const std::vector<GroupId>& groups,
           double now) {
  std::vector<GroupState> states;
  for (const GroupId group : groups) states.push_back(sent(client.state(group)));
  for (const GroupDelta& delta : server.fetch(states)) client.apply(sent(delta), now);
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

TEST(DraftStore, IncrementalFetchesReproduceTheTree) {
  std::mt19937 random(1);
  DraftStore server({.depth = 10});
  DraftStore client({.depth = 10});
  client.register_group(1, 100, 0);
  client.register_group(2, 100, 0);
  std::map<std::pair<GroupId, std::uint32_t>, std::uint64_t> sizes;
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 5; ++i) {
      const auto group = std::uniform_int_distribution<GroupId>(1, 3)(random);
      const auto sample = std::uniform_int_distribution<std::uint32_t>(0, 3)(random);
      std::uint64_t& size = sizes[{group, sample}];
      size = server.update(group, sample, size, random_text(random, 4, 5), 0);
    }
    fetch(server, client, {1, 2, 3}, 0);
    EXPECT_EQ(client.tree(3), nullptr) << "a group that was not registered";
    for (const GroupId group : {1U, 2U}) {
      if (server.tree(group) == nullptr) continue;
      ASSERT_EQ(difference(*client.tree(group), naive_of(*server.tree(group))), "");
    }
    EXPECT_TRUE(server.fetch(std::vector{client.state(1), client.state(2)}).empty());
  }
}

TEST(DraftStore, AClientThatKnowsItsOwnRequestsFetchesTheRest) {
  DraftStore server({.depth = 8});
  DraftStore client({.depth = 8});
  client.register_group(1, 100, 0);
  client.update(1, 0, 0, Text{1, 2, 3}, 0);
  server.update(1, 0, 0, Text{1, 2}, 0);
  server.update(1, 7, 0, Text{5, 6}, 0);
  fetch(server, client, {1}, 0);
  EXPECT_EQ(client.update(1, 0, 3, Text{4}, 0), 2U)
      << "the copy starts as the server's: send again";
  EXPECT_EQ(client.update(1, 0, 2, Text{3, 4}, 0), 4U);
  server.update(1, 0, 2, Text{3}, 0);
  server.update(1, 7, 2, Text{7}, 0);
  fetch(server, client, {1}, 0);
  EXPECT_EQ(difference(*client.tree(1), NaiveTree(8, {{1, 2, 3, 4}, {5, 6, 7}})), "");
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
  DraftStore server(limits);
  DraftStore client(limits);
  client.register_group(1, 100, 0);
  std::uint64_t size = 0;
  bool forgot = false;
  for (int round = 0; round < 400; ++round) {
    const Text text = random_text(random, 50, 200);
    const std::uint64_t held = server.update(1, round % 2, size / 2, text, 0);
    ASSERT_EQ(held, size / 2 + text.size()) << "forgotten tokens count as held";
    if (round % 2 == 1) size += 2 * text.size();
    EXPECT_LE(server.bytes(), limits.max_group_bytes);
    forgot = forgot || server.tree(1)->tokens(0).size() < held;
    if (round % 20 == 0) {
      fetch(server, client, {1}, 0);
      EXPECT_EQ(server.tree(1)->nodes(), client.tree(1)->nodes());
    }
  }
  EXPECT_TRUE(forgot);
  EXPECT_EQ(difference(*server.tree(1), naive_of(*server.tree(1))), "");
  fetch(server, client, {1}, 0);
  EXPECT_EQ(difference(*client.tree(1), naive_of(*server.tree(1))), "");
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

TEST(DraftStore, BatchesDoNotDependOnThreadsOrOnWhereTheTextIs) {
  std::mt19937 random(4);
  DraftStore store({.depth = 12});
  std::vector<Text> texts;
  for (std::uint32_t request = 0; request < 200; ++request) {
    texts.push_back(random_text(random, 200, 4));
    store.update(request / 8, request % 8, 0, texts.back(), 0);
  }
  std::vector<std::vector<DraftBuffers>> drafts;
  std::vector<std::vector<int>> counts;
  for (const int threads : {1, 2, 5}) {
    for (const bool current : {true, false}) {
      ThreadPool pool(threads);
      drafts.emplace_back(texts.size(), DraftBuffers(8));
      std::vector<SpeculationSlot> batch(texts.size());
      for (std::uint32_t request = 0; request < batch.size(); ++request) {
        SpeculationSlot& slot = batch[request];
        slot.group = request / 8;
        slot.sample = current ? request % 8 : 99;
        slot.size = texts[request].size();
        slot.text = std::span(texts[request]).last(11);
        slot.options.limits = {8, 4, 3};
        slot.output = drafts.back()[request].output();
      }
      for (int repeat = 0; repeat < 3; ++repeat) store.batch_speculate(batch, pool);
      counts.emplace_back();
      for (const SpeculationSlot& slot : batch) counts.back().push_back(slot.result.count);
    }
  }
  for (std::size_t i = 1; i < drafts.size(); ++i) {
    ASSERT_EQ(counts[i], counts[0]);
    for (std::size_t request = 0; request < texts.size(); ++request) {
      EXPECT_EQ(drafts[i][request].tokens, drafts[0][request].tokens);
      EXPECT_EQ(drafts[i][request].parents, drafts[0][request].parents);
      EXPECT_EQ(drafts[i][request].scores, drafts[0][request].scores);
    }
  }
}

}  // namespace
}  // namespace paceline::draft
