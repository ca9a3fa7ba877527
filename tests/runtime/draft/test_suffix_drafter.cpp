#include "runtime/draft/suffix_drafter.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/runtime/draft/naive_tree.hpp"

namespace paceline::draft {
namespace {

using Text = std::vector<TokenId>;

SuffixDrafterOptions options() {
  SuffixDrafterOptions o;
  o.store.depth = 16;
  o.speculation.offset = 8;
  return o;
}

/// The proposal for one request as a chain's tokens.
Text propose(Drafter& drafter, RequestId id, int length = 4, double now = 0) {
  DraftBuffers buffers(length);
  std::vector<DraftSlot> batch(1);
  batch[0].id = id;
  batch[0].limits = {length, length, 1};
  batch[0].output = buffers.output();
  drafter.propose(batch, now);
  buffers.tokens.resize(batch[0].count);
  return buffers.tokens;
}

TEST(SuffixDrafter, LearnsFromPromptAndSiblings) {
  ThreadPool pool(1);
  SuffixDrafter drafter(options(), pool);
  const Text prompt{1, 2, 3, 4, 5};
  drafter.start({{0, 0}, prompt, {}, {}}, 0);
  drafter.start({{0, 1}, prompt, {}, {}}, 0);
  drafter.start({{1, 0}, prompt, {}, {}}, 0);
  drafter.commit({0, 0}, Text{2, 3}, 0);
  EXPECT_EQ(propose(drafter, {0, 0}), (Text{4, 5, 2, 3})) << "from its own prompt";
  drafter.commit({0, 0}, Text{70, 71, 72, 73, 74}, 0);
  drafter.commit({0, 1}, Text{70}, 0);
  drafter.commit({1, 0}, Text{70}, 0);
  EXPECT_EQ(propose(drafter, {0, 1}), (Text{71, 72, 73, 74})) << "from its sibling";
  EXPECT_TRUE(propose(drafter, {1, 0}).empty()) << "other groups know nothing of it";
  drafter.finish({0, 0}, 0);
  EXPECT_EQ(propose(drafter, {0, 1}), (Text{71, 72, 73, 74})) << "the finished stay useful";
}

// Nothing is drafted while they speak: trees take texts in when responses end or go elsewhere.
TEST(SuffixDrafter, SiblingsThatNobodyDraftedForAreLearnedFrom) {
  ThreadPool pool(1);
  SuffixDrafter drafter(options(), pool);
  const Text prompt{1, 2, 3};
  for (const std::uint32_t sample : {0U, 1U, 2U, 3U})
    drafter.start({{0, sample}, prompt, {}, {}}, 0);
  drafter.commit({0, 0}, Text{70, 71}, 0);
  drafter.commit({0, 0}, Text{72, 73}, 0);
  drafter.finish({0, 0}, 0);
  drafter.commit({0, 1}, Text{80, 81, 82}, 0);
  drafter.leave({0, 1}, 0);
  drafter.commit({0, 2}, Text{90, 91, 92}, 0);
  drafter.commit({0, 3}, Text{70}, 0);
  EXPECT_EQ(propose(drafter, {0, 3}), (Text{71, 72, 73})) << "it ended";
  drafter.commit({0, 3}, Text{80}, 0);
  EXPECT_EQ(propose(drafter, {0, 3}), (Text{81, 82})) << "it went elsewhere";
  drafter.commit({0, 3}, Text{90}, 0);
  EXPECT_EQ(propose(drafter, {0, 3}), (Text{91, 92})) << "it goes on";
}

TEST(SuffixDrafter, TheHigherScoreWinsAndItsOwnTreeOnTies) {
  ThreadPool pool(1);
  SuffixDrafter drafter(options(), pool);
  drafter.start({{0, 0}, Text{9, 50, 51, 9}, {}, {}}, 0);
  drafter.start({{0, 1}, Text{9, 50, 51, 9}, {}, {}}, 0);
  drafter.commit({0, 1}, Text{9, 60, 61, 62}, 0);
  drafter.commit({0, 0}, Text{8, 9}, 0);
  // Own: 9 -> 50 or 8. The group's: 9 -> 60 for certain.
  EXPECT_EQ(propose(drafter, {0, 0}, 3), (Text{60, 61, 62}));
  SuffixDrafter tied(options(), pool);
  tied.start({{0, 0}, Text{9, 50, 51, 52}, {}, {}}, 0);
  tied.start({{0, 1}, Text{9, 50, 51, 52}, {}, {}}, 0);
  tied.commit({0, 1}, Text{9, 60, 61, 62}, 0);
  tied.commit({0, 0}, Text{9}, 0);
  EXPECT_EQ(propose(tied, {0, 0}, 3), (Text{50, 51, 52}));
}

TEST(SuffixDrafter, StartsInTheMiddleAndStartsAgain) {
  ThreadPool pool(1);
  SuffixDrafter drafter(options(), pool);
  drafter.start({{0, 0}, Text{1}, Text{5, 6, 7}, {}}, 0);
  drafter.finish({0, 0}, 0);
  drafter.start({{0, 0}, Text{1}, Text{5, 6, 7}, {}}, 0);
  drafter.commit({0, 0}, Text{8, 9}, 0);
  drafter.start({{0, 1}, Text{1}, Text{6}, {}}, 0);
  EXPECT_EQ(propose(drafter, {0, 1}), (Text{7, 8, 9}));
}

TEST(SuffixDrafter, FeedsAGroupAgainThatExpired) {
  SuffixDrafterOptions o = options();
  o.ttl = 10;
  ThreadPool pool(1);
  SuffixDrafter drafter(o, pool);
  drafter.start({{0, 0}, Text{1}, {}, {}}, 0);
  drafter.commit({0, 0}, Text{5, 6, 7}, 0);
  drafter.start({{0, 1}, Text{1}, Text{5}, {}}, 1);
  EXPECT_EQ(propose(drafter, {0, 1}, 4, 2), (Text{6, 7}));
  EXPECT_TRUE(propose(drafter, {0, 1}, 4, 100).empty()) << "the group's time is over";
  drafter.commit({0, 0}, Text{8}, 100);
  EXPECT_EQ(propose(drafter, {0, 1}, 4, 101), (Text{6, 7, 8}));
  EXPECT_TRUE(propose(drafter, {0, 1}, 4, 112).empty()) << "it keeps its time to live";
}

TEST(SuffixDrafter, RefusesUnknownRequests) {
  ThreadPool pool(1);
  SuffixDrafter drafter(options(), pool);
  drafter.start({{0, 0}, Text{1}, {}, {}}, 0);
  EXPECT_THROW(drafter.start({{0, 0}, Text{1}, {}, {}}, 0), std::logic_error);
  EXPECT_THROW(drafter.commit({0, 1}, Text{1}, 0), std::logic_error);
  EXPECT_THROW(drafter.finish({0, 1}, 0), std::logic_error);
  EXPECT_THROW(propose(drafter, {0, 1}), std::logic_error);
}

TEST(SuffixDrafter, ProposalsDependOnTextsAlone) {
  std::mt19937 random(1);
  constexpr std::uint32_t kRequests = 64;
  std::vector<Text> texts(kRequests);
  for (Text& text : texts) {
    for (int i = 0; i < 100; ++i) {
      text.push_back(std::uniform_int_distribution(0, 3)(random));
    }
  }
  const auto id = [](std::uint32_t request) { return RequestId{request / 8, request % 8}; };
  std::vector<std::vector<Text>> all;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    SuffixDrafter drafter(options(), pool);
    for (std::uint32_t r = 0; r < kRequests; ++r) drafter.start({id(r), Text{7, 1, 2}, {}, {}}, 0);
    std::vector<std::size_t> told(kRequests, 0);
    // Requests advance by turns that differ from one drafter to the next.
    for (std::size_t left = kRequests * 100; left > 0;) {
      const auto r = std::uniform_int_distribution<std::uint32_t>(0, kRequests - 1)(random);
      const std::size_t n = std::min<std::size_t>(threads, 100 - told[r]);
      drafter.commit(id(r), std::span(texts[r]).subspan(told[r], n), 0);
      told[r] += n;
      left -= n;
    }
    std::vector<DraftBuffers> buffers(kRequests, DraftBuffers(12));
    std::vector<DraftSlot> batch(kRequests);
    for (std::uint32_t r = 0; r < kRequests; ++r) {
      batch[r].id = id(r);
      batch[r].limits = {12, 6, 4};
      batch[r].output = buffers[r].output();
    }
    drafter.propose(batch, 0, nullptr);
    all.emplace_back();
    for (std::uint32_t r = 0; r < kRequests; ++r) {
      EXPECT_GT(batch[r].count, 0);
      buffers[r].tokens.resize(batch[r].count);
      for (int i = 0; i < batch[r].count; ++i) EXPECT_LT(buffers[r].parents[i], i);
      all.back().push_back(buffers[r].tokens);
    }
  }
  EXPECT_EQ(all[1], all[0]);
  EXPECT_EQ(all[2], all[0]);
}

TEST(SuffixDrafter, BeginsWithWhatEarlierStepsSaid) {
  ThreadPool pool(1);
  SuffixDrafter drafter(options(), pool);
  drafter.recall({0, 0}, 1, 0, Text{70, 71, 72, 73}, true, 0);
  drafter.start({{0, 0}, Text{1}, {}, {}}, 0);
  drafter.commit({0, 0}, Text{70}, 0);
  EXPECT_TRUE(propose(drafter, {0, 0}).empty()) << "what came before the group did is lost";
  EXPECT_FALSE(drafter.recalls());
  drafter.recall({0, 0}, 2, 0, Text{70, 81, 82, 83}, true, 0);
  EXPECT_EQ(propose(drafter, {0, 0}), (Text{81, 82, 83}));
  drafter.recall({0, 0}, 1, 0, Text{70, 71, 72, 73}, true, 0);
  EXPECT_EQ(propose(drafter, {0, 0}), (Text{71, 72, 73})) << "the newer of two";
  drafter.start({{0, 2}, Text{1}, {}, {}}, 0);
  EXPECT_EQ(propose(drafter, {0, 2}), (Text{70, 71, 72, 73})) << "from the first token on";
  drafter.start({{0, 1}, Text{1}, {}, {}}, 0);
  drafter.commit({0, 1}, Text{70, 91, 92, 93}, 0);
  EXPECT_EQ(propose(drafter, {0, 0}), (Text{91, 92, 93})) << "and before both this step's";
  EXPECT_TRUE(drafter.recalls()) << "with all proposals but one";
  EXPECT_TRUE(drafter.remembers(0));
  EXPECT_FALSE(drafter.remembers(1));

  DraftBuffers buffers(4);
  const Text assumed{91, 70, 71};
  std::vector<DraftSlot> batch(1);
  batch[0].id = {0, 0};
  batch[0].limits = {4, 4, 1};
  batch[0].output = buffers.output();
  batch[0].assumed = assumed;
  drafter.propose(batch, 0, nullptr);
  ASSERT_EQ(batch[0].count, 2);
  EXPECT_EQ(buffers.tokens[0], 72) << "after assumed tokens, too";
}

// An earlier step's texts lead astray at every second place where this step's are right. So it is
// soon found that they count less, but their drafts are right where only they know the text.
TEST(SuffixDrafter, OldTextsCountAsMuchAsTheyAreRight) {
  ThreadPool pool(1);
  SuffixDrafter drafter(options(), pool);
  drafter.start({{0, 0}, Text{1}, {}, {}}, 0);
  drafter.start({{0, 1}, Text{1}, {}, {}}, 0);
  Text now, earlier;
  for (TokenId i = 0; i < 200; ++i) {
    now.insert(now.end(), {10 + i, 1000 + i});
    earlier.insert(earlier.end(), {10 + i, i % 2 == 0 ? 1000 + i : 2000 + i});
  }
  drafter.recall({0, 0}, 5, 0, earlier, true, 0);
  for (std::size_t t = 0; t < now.size(); ++t) {
    static_cast<void>(propose(drafter, {0, 0}, 1));
    drafter.commit({0, 0}, std::span(now).subspan(t, 1), 0);
  }
  std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> alone;  // by position
  for (const AcceptanceCell& cell : drafter.recalled()) {
    EXPECT_EQ(cell.drafter, 3U) << "5 to 8 steps";
    alone[cell.position] = {cell.drafted, cell.accepted};
  }
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[1].first, 301U) << "of 400 places those whose last token the earlier step said";
  EXPECT_EQ(alone[1].second, 201U);

  // Two tokens of a sibling's beat four of the earlier step's, which were expected to be more.
  drafter.recall({0, 1}, 5, 0, Text{5, 500, 501, 502, 503}, true, 0);
  drafter.commit({0, 0}, Text{5, 600, 601}, 0);
  drafter.commit({0, 1}, Text{5}, 0);
  EXPECT_EQ(propose(drafter, {0, 1}, 4), (Text{600, 601}));
  SuffixDrafter unlearned(options(), pool);
  unlearned.start({{0, 1}, Text{1}, {}, {}}, 0);
  unlearned.start({{0, 0}, Text{1}, {}, {}}, 0);
  unlearned.recall({0, 1}, 5, 0, Text{5, 500, 501, 502, 503}, true, 0);
  unlearned.commit({0, 0}, Text{5, 600, 601}, 0);
  unlearned.commit({0, 1}, Text{5}, 0);
  EXPECT_EQ(propose(unlearned, {0, 1}, 4), (Text{500, 501, 502, 503}));
}

TEST(TextAge, ClassesDouble) {
  std::map<int, std::string> names;
  for (std::uint32_t age = 1; age <= 100; ++age)
    names[age_class(age)] = ages_of_class(age_class(age));
  EXPECT_EQ(age_class(0), 0);
  EXPECT_EQ(age_class(2), 2);
  EXPECT_EQ(age_class(4), 3);
  EXPECT_EQ(age_class(5), 4);
  EXPECT_EQ(age_class(UINT32_MAX), kAgeClasses - 1);
  EXPECT_EQ(
      names,
      (std::map<int, std::string>{
          {1, "1"}, {2, "2"}, {3, "3-4"}, {4, "5-8"}, {5, "9-16"}, {6, "17-32"}, {7, "33+"}}));
}

TEST(TextAge, TrustIsLearnedAndForgotten) {
  AgeTrust trust;
  EXPECT_EQ(trust.trust(0), 1.0F);
  EXPECT_LT(trust.trust(2), trust.trust(1)) << "until more is known";
  for (int i = 0; i < 1000; ++i) {
    trust.record(0, 0.5, i % 4 == 0);  // half as often as is said
    trust.record(1, 1, i % 4 == 0);    // a quarter
    trust.record(2, 1, true);
  }
  EXPECT_NEAR(static_cast<double>(trust.trust(1)), 0.5, 0.05);
  EXPECT_EQ(trust.trust(2), 1.0F) << "never more than this step's";
  for (int i = 0; i < 20'000; ++i) trust.record(1, 1, true);
  EXPECT_EQ(trust.trust(1), 1.0F);
}

}  // namespace
}  // namespace paceline::draft
