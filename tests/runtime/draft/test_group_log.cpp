#include <gtest/gtest.h>

#include <random>

#include "runtime/draft/group_log.hpp"

namespace paceline::draft {
namespace {

using Text = std::vector<TokenId>;

constexpr std::size_t kAll = 1 << 20;

/// Someone who reads logs, and what he knows by that.
struct Reader {
  LogClient name = 0;
  LogPlace place = {};
  std::map<std::uint32_t, Text> texts = {};
  std::map<std::uint32_t, bool> ended = {};
  std::uint64_t read(GroupLogs& logs, std::size_t most = kAll, double now = 0) {
    std::vector<LoggedText> said;
    const std::uint64_t left = logs.fetch(place, name, most, now, said);
    for (const LoggedText& text : said) {
      EXPECT_EQ(text.id.prompt, place.group);
      Text& own = texts[text.id.sample];
      EXPECT_EQ(text.offset, own.size());
      own.insert(own.end(), text.tokens.begin(), text.tokens.end());
      ended[text.id.sample] = text.ended;
    }
    return left;
  }
};

TEST(GroupLogs, EachRequestHasATextOfItsOwn) {
  GroupLogs logs({});
  EXPECT_EQ(logs.update({1, 0}, 0, Text{1, 2, 3}, 10, 0), 3U);
  EXPECT_EQ(logs.update({1, 1}, 0, Text{7}, 20, 0), 1U);
  EXPECT_EQ(logs.update({1, 0}, 2, Text{3, 4}, 20, 0), 4U) << "an overlap adds what is new";
  EXPECT_EQ(logs.update({1, 0}, 0, Text{1, 2}, 10, 0), 4U) << "said twice";
  EXPECT_EQ(logs.update({1, 0}, 6, Text{9}, 10, 0), 4U) << "a gap adds nothing";
  EXPECT_EQ(logs.update({2, 0}, 5, Text{9}, 10, 0), 0U);
  Reader reader{30, {.group = 1}};
  EXPECT_EQ(reader.read(logs), 0U);
  EXPECT_EQ(reader.texts, (std::map<std::uint32_t, Text>{{0, {1, 2, 3, 4}}, {1, {7}}}));
  EXPECT_EQ(logs.held({1, 0}), 4U);
  EXPECT_EQ(logs.held({1, 5}), 0U);
  EXPECT_EQ(logs.held({9, 0}), 0U);
}

TEST(GroupLogs, NobodyReadsWhatHeSaidHimself) {
  GroupLogs logs({});
  Reader first{10, {.group = 1}};
  logs.update({1, 0}, 0, Text{1, 2}, 10, 0);
  logs.update({1, 1}, 0, Text{5}, 20, 0);
  logs.update({1, 0}, 2, Text{3}, 20, 0);  // it has moved
  std::vector<LoggedText> said;
  logs.fetch(first.place, first.name, kAll, 0, said);
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[1].offset, 2U);
  EXPECT_EQ(said[1].tokens.size(), 1U);
  said.clear();
  logs.fetch(first.place, first.name, kAll, 0, said);
  EXPECT_TRUE(said.empty()) << "nothing comes twice";
}

TEST(GroupLogs, FetchesInAnyPortionsGiveAllTexts) {
  std::mt19937 random(1);
  GroupLogs logs({});
  std::map<std::uint32_t, Text> truth;
  std::vector<Reader> readers{{100, {.group = 1}}, {101, {.group = 1}}, {102, {.group = 1}}};
  const std::size_t portions[] = {1, 7, kAll};
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t sample = random() % 4;
    Text& text = truth[sample];
    const std::size_t from = text.size();
    for (std::uint32_t i = 0; i <= random() % 9; ++i)
      text.push_back(static_cast<TokenId>(random()));
    logs.update({1, sample}, from, std::span(text).subspan(from), random() % 3, 0);
    for (std::size_t r = 0; r < readers.size(); ++r) {
      if (random() % 3 == 0) readers[r].read(logs, portions[r]);
    }
  }
  for (std::size_t r = 0; r < readers.size(); ++r) {
    std::uint64_t before = UINT64_MAX;
    for (std::uint64_t left = 1; left > 0;) {
      left = readers[r].read(logs, portions[r]);
      ASSERT_LT(left, before) << "each brings something";
      before = left;
    }
    EXPECT_EQ(readers[r].texts, truth);
  }
}

TEST(GroupLogs, ALargeArrearComesAsOneStretchOfEachText) {
  GroupLogs logs({});
  for (std::uint32_t i = 0; i < 100; ++i) {
    for (const std::uint32_t sample : {0U, 1U}) logs.update({1, sample}, i, Text{7}, 5, 0);
  }
  LogPlace place{.group = 1};
  std::vector<LoggedText> said;
  logs.fetch(place, 6, kAll, 0, said);
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[0].tokens.size(), 100U);
}

TEST(GroupLogs, AGroupGoesWhenAllItsResponsesHaveEnded) {
  GroupLogs logs({.samples = 2});
  Reader reader{9, {.group = 1}};
  logs.update({1, 0}, 0, Text{1, 2}, 5, 0);
  logs.end({1, 0}, 5, 0);
  logs.end({1, 0}, 6, 0);
  logs.update({1, 1}, 0, Text{1, 2}, 5, 0);
  reader.read(logs);
  EXPECT_EQ(reader.ended, (std::map<std::uint32_t, bool>{{0, true}, {1, false}}));
  EXPECT_EQ(logs.groups(), 1U);
  logs.end({1, 1}, 5, 0);
  EXPECT_EQ(logs.groups(), 0U);
  EXPECT_EQ(logs.bytes(), 0U);
  EXPECT_EQ(reader.read(logs), 0U);
  EXPECT_EQ(logs.groups(), 0U) << "asking makes no group";
}

TEST(GroupLogs, PromptsMayHaveTheirOwnNumbersOfResponses) {
  GroupLogs logs({.samples = 2, .own_samples = {1, 3}});
  logs.end({0, 0}, 5, 0);
  EXPECT_EQ(logs.groups(), 0U);
  for (const std::uint32_t sample : {0U, 1U}) logs.end({1, sample}, 5, 0);
  EXPECT_EQ(logs.groups(), 1U);
  logs.end({1, 2}, 5, 0);
  EXPECT_EQ(logs.groups(), 0U);
}

TEST(GroupLogs, AGroupThatBeginsAnewIsReadFromItsBeginning) {
  GroupLogs logs({.ttl = 10});
  Reader reader{9, {.group = 1}};
  logs.update({1, 0}, 0, Text{1, 2}, 5, 0);
  reader.read(logs, kAll, 8);
  EXPECT_EQ(logs.expire(17), 0) << "it was asked for";
  EXPECT_EQ(logs.expire(18), 1);
  EXPECT_EQ(logs.update({1, 0}, 2, Text{3}, 5, 20), 0U) << "what it held is missing";
  logs.update({1, 0}, 0, Text{1, 2, 3}, 5, 20);
  reader.texts.clear();
  reader.read(logs, kAll, 20);
  EXPECT_EQ(reader.texts.at(0), (Text{1, 2, 3}));
}

TEST(GroupLogs, PastTheirMemoryTheGroupTouchedLongestAgoIsGivenUp) {
  GroupLogs logs({.max_bytes = 20'000});
  for (GroupId group = 0; group < 20; ++group) {
    logs.update({group, 0}, 0, Text(500, 1), 5, group);
    EXPECT_LE(logs.bytes(), 20'000U);
  }
  EXPECT_EQ(logs.held({0, 0}), 0U);
  EXPECT_EQ(logs.held({19, 0}), 500U);
  EXPECT_EQ(logs.update({0, 0}, 500, Text{1}, 5, 30), 501U) << "nobody is asked for it again";
  EXPECT_EQ(logs.held({0, 0}), 0U);
  GroupLogs tiny({.max_bytes = 100});
  EXPECT_EQ(tiny.update({0, 0}, 0, Text(500, 1), 5, 0), 500U);
  EXPECT_EQ(tiny.bytes(), 0U);
}

TEST(GroupLogs, ResponsesOfEarlierStepsAreReadApartInAnyPortions) {
  GroupLogs logs({.samples = 2});
  EXPECT_TRUE(logs.first_asked(1, 0));
  EXPECT_FALSE(logs.first_asked(1, 0));
  const Text newer{1, 2, 3}, older{4, 5};
  logs.add_earlier({1, 0}, 1, newer, 0);
  logs.add_earlier({1, 0}, 1, newer, 0);
  logs.add_earlier({1, 0}, 2, older, 0);
  EXPECT_EQ(logs.held({1, 0}), 0U) << "this step's has not begun";
  logs.update({1, 0}, 0, Text{7}, 10, 0);
  for (const std::size_t most : {std::size_t{1}, std::size_t{2}, kAll}) {
    LogPlace place{.group = 1};
    EXPECT_EQ(logs.left_earlier(place), 5U);
    std::vector<LoggedText> said;
    EXPECT_EQ(logs.fetch(place, 10, kAll, 0, said), 0U);
    EXPECT_TRUE(said.empty()) << "this step's are apart";
    std::map<std::uint32_t, Text> texts;  // by age
    for (std::uint64_t left = 5; left > 0;) {
      said.clear();
      logs.fetch_earlier(place, most, 0, said);
      std::size_t tokens = 0;
      for (const LoggedText& text : said) {
        Text& own = texts[text.age];
        EXPECT_EQ(text.offset, own.size());
        own.insert(own.end(), text.tokens.begin(), text.tokens.end());
        EXPECT_EQ(text.ended, own.size() == (text.age == 1 ? 3U : 2U));
        tokens += text.tokens.size();
      }
      EXPECT_EQ(tokens, std::min<std::size_t>(most, left));
      left -= tokens;
      EXPECT_EQ(logs.left_earlier(place), left);
    }
    EXPECT_EQ(texts, (std::map<std::uint32_t, Text>{{1, newer}, {2, older}}));
  }
  LogPlace stale{.epoch = 99, .group = 1, .earlier = 1, .earlier_tokens = 1};
  EXPECT_EQ(logs.left_earlier(stale), 5U) << "of a group that began anew";
  logs.end({1, 0}, 10, 0);
  EXPECT_EQ(logs.groups(), 1U) << "of two responses of this step";
  logs.end({1, 1}, 10, 0);
  EXPECT_EQ(logs.groups(), 0U);
  EXPECT_EQ(logs.bytes(), 0U);
  EXPECT_TRUE(logs.first_asked(1, 0)) << "it knows nothing of the earlier one";
}

}  // namespace
}  // namespace paceline::draft
