// A verifier's side of drafter ranks that do not do as they should.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/protocol/messages.hpp"
#include "runtime/roles/drafter_rank.hpp"
#include "runtime/speculation/remote_drafter.hpp"
#include "tests/runtime/quiet_telemetry.hpp"
#include "tests/runtime/roles/oracle_drafter.hpp"
#include "tests/runtime/roles/simulated_mailbox.hpp"

namespace paceline::speculation {

using namespace protocol;

namespace {

using namespace roles::test;
using roles::DrafterRank;

constexpr RequestId kFirst{0, 0};
constexpr RequestId kSecond{0, 1};

struct RemoteDrafterTest : ::testing::Test {
  RemoteDrafterTest()
      : remote(mailbox, clock, {{1, 0}}, {.vocab = 40, .window = {4}, .patience = 2},
               [this](const std::string& text) { warnings.push_back(text); }) {}
  void start(RequestId id, std::vector<TokenId> response = {}) {
    remote.start({id, prompt, response, {}, 0}, clock.time);
  }
  void commit(RequestId id, std::vector<TokenId> tokens) { remote.commit(id, tokens, clock.time); }
  /// All that its rank was sent.
  std::vector<Message> sent() {
    std::vector<Message> all;
    while (auto envelope = post.take({1, Address::Port::role}))
      all.push_back(decode(envelope->bytes));
    return all;
  }
  void drafts(const Drafts& drafts) { remote.receive(1, encode(drafts)); }
  /// What it proposes for a request.
  std::vector<TokenId> proposed(RequestId id) {
    std::vector<TokenId> tokens(16);
    std::vector<std::int32_t> parents(16);
    std::vector<float> scores(16);
    draft::DraftSlot slot{.id = id, .limits = {16, 16, 1}, .output = {tokens, parents, scores}};
    remote.propose({&slot, 1}, clock.time, nullptr);
    tokens.resize(slot.count);
    return tokens;
  }
  Post post;
  SteppedClock clock;
  SimulatedMailbox mailbox{post, {0, Address::Port::role}};
  std::vector<std::string> warnings;
  std::vector<TokenId> prompt{1, 2, 3};
  RemoteDrafter remote;
};

TEST_F(RemoteDrafterTest, ARankThatDoesNotReadIsSentNoMoreAndToldAnewLater) {
  start(kFirst);
  start(kSecond);
  commit(kFirst, {5});
  remote.told();
  EXPECT_EQ(sent().size(), 3U);
  mailbox.set_full(true);
  commit(kFirst, {6});
  commit(kSecond, {7, 8});
  remote.told();
  start({1, 0});
  for (int step = 0; step < 1000; ++step) {
    commit(kFirst, {9});
    remote.told();
  }
  remote.finish(kSecond, clock.time);
  remote.told();
  EXPECT_TRUE(sent().empty());
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("drafter rank 1 does not read"), std::string::npos);

  mailbox.set_full(false);
  remote.told();
  const std::vector<Message> messages = sent();
  ASSERT_EQ(messages.size(), 3U);
  const auto& ends = std::get<DraftCommits>(messages[0]);
  ASSERT_EQ(ends.commits.size(), 1U);
  EXPECT_EQ(ends.commits[0].id, kSecond);
  EXPECT_EQ(ends.commits[0].end, DraftEnd::finished);
  const auto& again = std::get<DraftOpen>(messages[1]);
  EXPECT_EQ(again.id, kFirst);
  EXPECT_TRUE(again.prompt.empty());
  EXPECT_EQ(again.response.size(), 1002U);
  const auto& opened = std::get<DraftOpen>(messages[2]);
  EXPECT_EQ(opened.id, (RequestId{1, 0}));
  EXPECT_EQ(opened.prompt, prompt);

  // From then on it follows as before, and what it drafts is used.
  commit(kFirst, {4});
  remote.told();
  EXPECT_EQ(std::get<DraftCommits>(sent().at(0)).tokens, std::vector<TokenId>{4});
  drafts({{{kFirst, 1003, 1003, 0, 2}}, {11, 12}, {1, 1}});
  EXPECT_EQ(proposed(kFirst), (std::vector<TokenId>{11, 12}));
}

TEST_F(RemoteDrafterTest, NobodyDraftsForARequestThatAnotherDrafterIsToDraftFor) {
  remote.start({kFirst, prompt, {}, {}, 0, false}, clock.time);
  commit(kFirst, {5});
  remote.told();
  // Other drafters change nothing about that.
  remote.use({{2, 1}});
  remote.use({{1, 2}});
  EXPECT_TRUE(sent().empty());
  drafts({{{kFirst, 1, 1, 0, 2}}, {7, 8}, {1, 1}});
  EXPECT_TRUE(proposed(kFirst).empty());
}

/// Features of one byte a position: of position p, p.
std::vector<std::byte> features(int first, int end) {
  std::vector<std::byte> bytes;
  for (int p = first; p < end; ++p) bytes.push_back(static_cast<std::byte>(p));
  return bytes;
}

struct FeaturesTest : RemoteDrafterTest {
  FeaturesTest()
      : head(mailbox, clock, {{1, 0}},
             {.vocab = 40, .window = {4}, .patience = 2, .feature_bytes = 1},
             [this](const std::string& text) { warnings.push_back(text); }) {
    head.start({kFirst, prompt, {}, {}, 0}, clock.time);
    head.start({kSecond, prompt, {}, {}, 0}, clock.time);
    sent();
  }
  void step(RequestId id, int first, int end, std::vector<TokenId> tokens) {
    head.observe(id, first, features(first, end));
    if (!tokens.empty()) head.commit(id, tokens, clock.time);
  }
  RemoteDrafter head;
};

TEST_F(FeaturesTest, OneMessageAStepCarriesThoseOfAllRequestsBehindTheirTokens) {
  step(kFirst, 0, 3, {5});
  step(kSecond, 2, 3, {6, 7});
  head.told();
  std::vector<Message> messages = sent();
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(std::get<DraftCommits>(messages[0]).tokens, (std::vector<TokenId>{5, 6, 7}));
  const auto& rows = std::get<DraftFeatures>(messages[1]);
  ASSERT_EQ(rows.rows.size(), 2U);
  EXPECT_EQ(rows.rows[0].id, kFirst);
  EXPECT_EQ(rows.rows[0].first, 0);
  EXPECT_EQ(rows.rows[0].count, 3);
  EXPECT_EQ(rows.rows[1].id, kSecond);
  EXPECT_EQ(rows.rows[1].first, 2);
  EXPECT_EQ(rows.rows[1].count, 1);
  EXPECT_EQ(rows.features,
            (std::vector<std::byte>{std::byte{0}, std::byte{1}, std::byte{2}, std::byte{2}}));
  // A chunk of a prompt commits nothing. What was sent is not sent again, nor is what is computed
  // again.
  step(kFirst, 2, 6, {});
  head.told();
  messages = sent();
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(std::get<DraftFeatures>(messages[0]).rows[0].first, 3);
  EXPECT_EQ(std::get<DraftFeatures>(messages[0]).features, features(3, 6));
  head.told();
  EXPECT_TRUE(sent().empty());
}

TEST_F(FeaturesTest, ARankThatDoesNotReadIsSentTheLatestOnceItDoes) {
  mailbox.set_full(true);
  for (int p = 0; p < 1000; ++p) {
    step(kFirst, p, p + 1, {static_cast<TokenId>(p % 40)});
    head.told();
  }
  EXPECT_TRUE(sent().empty());
  EXPECT_TRUE(warnings.empty()) << "it is busy";
  mailbox.set_full(false);
  head.told();
  const std::vector<Message> messages = sent();
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(std::get<DraftCommits>(messages[0]).tokens.size(), 1000U) << "it goes on as it was";
  const DraftRows& rows = std::get<DraftFeatures>(messages[1]).rows.at(0);
  EXPECT_EQ(rows.first + rows.count, 1000);
  EXPECT_GE(rows.count, draft::kMostKeptFeatures);
  EXPECT_LE(rows.count, 2 * draft::kMostKeptFeatures);
}

TEST_F(FeaturesTest, WhereTokensGrowTooManyTheRankIsToldAnew) {
  mailbox.set_full(true);
  for (int p = 0; p < 20'000; ++p) {
    step(kFirst, p, p + 1, {1});
    head.told();
  }
  EXPECT_EQ(warnings.size(), 1U);
  mailbox.set_full(false);
  head.told();
  const std::vector<Message> messages = sent();
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(std::get<DraftOpen>(messages[0]).response.size(), 20'000U);
  EXPECT_EQ(std::get<DraftFeatures>(messages[1]).rows.at(0).id, kFirst);
}

TEST_F(FeaturesTest, MessagesAreBoundedAndRequestsTakeTurns) {
  constexpr std::size_t kRow = kMostFeatureBytes / 300;  // 300 rows and a bit
  RemoteDrafter wide(mailbox, clock, {{1, 0}},
                     {.vocab = 40, .window = {4}, .patience = 2, .feature_bytes = kRow}, {});
  wide.start({kFirst, prompt, {}, {}, 0}, clock.time);
  wide.start({kSecond, prompt, {}, {}, 0}, clock.time);
  sent();
  for (const RequestId id : {kFirst, kSecond})
    wide.observe(id, 0, std::vector<std::byte>(400 * kRow));
  wide.told();
  const std::vector<Message> messages = sent();
  ASSERT_EQ(messages.size(), 3U);
  std::map<RequestId, int> rows;
  for (const Message& message : messages) {
    const auto& part = std::get<DraftFeatures>(message);
    EXPECT_LE(part.features.size(), kMostFeatureBytes);
    for (const DraftRows& r : part.rows) {
      EXPECT_EQ(r.first, rows[r.id]) << "in order";
      rows[r.id] += r.count;
    }
  }
  EXPECT_EQ(rows, (std::map<RequestId, int>{{kFirst, 400}, {kSecond, 400}}));
}

TEST_F(FeaturesTest, NobodyIsSentWhatNobodyReads) {
  remote.start({kFirst, prompt, {}, {}, 0}, clock.time);
  EXPECT_EQ(remote.capabilities().features, nullptr);
  remote.observe(kFirst, 0, features(0, 3));
  sent();
  remote.told();
  EXPECT_TRUE(sent().empty());
  // Nor of a request that nobody is to draft for.
  const RequestId unwanted{0, 2};
  head.start({unwanted, prompt, {}, {}, 0, false}, clock.time);
  step(unwanted, 0, 3, {5});
  head.told();
  for (const Message& message : sent())
    EXPECT_FALSE(std::holds_alternative<DraftFeatures>(message));
}

/// What it was told of the target.
struct Listener final : draft::Drafter, draft::FeatureReader {
  void start(const draft::DraftStart&, double) override {}
  void commit(RequestId, std::span<const TokenId>, double) override {}
  void finish(RequestId, double) override {}
  [[nodiscard]] draft::Capabilities capabilities() override { return {.features = this}; }
  [[nodiscard]] std::size_t feature_bytes() const override { return 4; }
  void observe(RequestId id, std::int32_t first, std::span<const std::byte> rows) override {
    heard.emplace_back(id, first, rows.size());
  }
  void propose(std::span<draft::DraftSlot>, double, draft::Levels*) override { ++asked; }
  std::vector<std::tuple<RequestId, std::int32_t, std::size_t>> heard;
  int asked = 0;
};

TEST(DrafterRank, FeaturesThatMakeNoSenseAreCountedAndDropped) {
  for (const DType type : {DType::bf16, DType::f32}) {
    Post post;
    SteppedClock clock;
    QuietTelemetry telemetry;
    SimulatedMailbox verifier(post, {0, Address::Port::role});
    SimulatedMailbox other(post, {2, Address::Port::role});
    SimulatedMailbox mailbox(post, {1, Address::Port::role});
    std::vector<std::unique_ptr<draft::Drafter>> drafters;
    drafters.push_back(std::make_unique<Listener>());
    const auto& heard = dynamic_cast<Listener&>(*drafters[0]).heard;
    const int& asked = dynamic_cast<Listener&>(*drafters[0]).asked;
    DrafterRank rank(mailbox, clock, std::move(drafters), telemetry,
                     {.place = {1, 3}, .window = {4}, .max_batch = 5, .features = type});
    const Address to{1, Address::Port::role};
    verifier.send(to, encode(DraftOpen{3, kFirst, {1, 2, 3}, {4}, {}, 0}));
    const auto rows = [](std::size_t bytes) { return std::vector<std::byte>(bytes); };
    const auto of_value = [&](float value) {
      std::vector<std::byte> bytes(4);
      std::memcpy(bytes.data(), &value, 4);
      if (type == DType::bf16) std::copy(bytes.begin() + 2, bytes.end(), bytes.begin());
      return bytes;
    };
    std::uint64_t invalid = 0;
    for (const DraftFeatures& wrong : {
             DraftFeatures{3, {{kFirst, 0, 2}}, rows(4)},   // fewer than it says
             DraftFeatures{3, {{kFirst, 0, 1}}, rows(8)},   // more
             DraftFeatures{3, {{kFirst, 0, 1}}, rows(5)},   // no whole rows
             DraftFeatures{3, {}, rows(4)},                 //
             DraftFeatures{3, {{kFirst, -1, 1}}, rows(4)},  // before the text
             DraftFeatures{3, {{kFirst, 0, 0}}, rows(0)},   // nothing
             DraftFeatures{3, {{kFirst, 2, -1}}, rows(4)},  //
             DraftFeatures{3, {{kFirst, 4, 1}}, rows(4)},   // past its end
             DraftFeatures{3, {{kFirst, INT32_MAX, 1}}, rows(4)},
             DraftFeatures{3, {{kFirst, 0, INT32_MAX}, {kFirst, 0, INT32_MAX}}, rows(4)},
             DraftFeatures{3, {{kFirst, 0, 1}}, of_value(std::numeric_limits<float>::infinity())},
             DraftFeatures{3, {{kFirst, 0, 1}}, of_value(std::numeric_limits<float>::quiet_NaN())},
             DraftFeatures{3, {{kFirst, 0, 1}}, of_value(-3e38F)},
         }) {
      verifier.send(to, encode(wrong));
      rank.turn();
      EXPECT_EQ(rank.summary().invalid, ++invalid);
    }
    verifier.send(to, encode(DraftCommits{3, {{kFirst, 1, 5, DraftEnd::goes_on}}, {7}}));
    verifier.send(to, encode(DraftCommits{3, {{kFirst, -1, 1, DraftEnd::goes_on}}, {7}}));
    rank.turn();
    EXPECT_EQ(rank.summary().invalid, invalid += 2);
    EXPECT_TRUE(heard.empty());
    // Of another place, of another's request and of none: late, and no nonsense.
    verifier.send(to, encode(DraftFeatures{2, {{kFirst, 0, 1}}, rows(4)}));
    other.send(to, encode(DraftFeatures{3, {{kFirst, 0, 1}}, rows(4)}));
    verifier.send(to, encode(DraftFeatures{3, {{kSecond, 0, 1}}, rows(4)}));
    rank.turn();
    EXPECT_TRUE(heard.empty());
    EXPECT_EQ(rank.summary().invalid, invalid);
    // What makes sense is heard, and makes it try again.
    const int before = asked;
    verifier.send(
        to, encode(DraftFeatures{3, {{kFirst, 0, 1}, {kSecond, 0, 2}, {kFirst, 3, 1}}, rows(16)}));
    rank.turn();
    EXPECT_EQ(heard, (std::vector<std::tuple<RequestId, std::int32_t, std::size_t>>{
                         {kFirst, 0, 4}, {kFirst, 3, 4}}));
    EXPECT_EQ(asked, before + 1);
  }
}

TEST(DrafterRank, DraftsAsFarAheadAsItsWindowAllows) {
  Responses truth;
  for (TokenId token = 0; token < 30; ++token) truth[kFirst].tokens.push_back(token);
  for (const int window : {1, 2, 4}) {
    Post post;
    SteppedClock clock;
    QuietTelemetry telemetry;
    SimulatedMailbox verifier(post, {0, Address::Port::role});
    SimulatedMailbox mailbox(post, {1, Address::Port::role});
    std::vector<std::unique_ptr<draft::Drafter>> drafters;
    drafters.push_back(std::make_unique<OracleDrafter>(truth, 1));
    DrafterRank rank(mailbox, clock, std::move(drafters), telemetry,
                     {.place = {1, 0}, .window = {window}, .max_batch = 5});
    verifier.send({1, Address::Port::role}, encode(DraftOpen{0, kFirst, {1, 2}, {}, {}, 0}));
    std::vector<TokenId> sent;
    for (int turn = 0; turn < 100; ++turn) {
      rank.turn();
      while (auto envelope = post.take({0, Address::Port::role})) {
        const Message message = decode(envelope->bytes);
        const auto& drafts = std::get<Drafts>(message);
        for (const DraftPiece& piece : drafts.pieces) EXPECT_LE(piece.count, window);
        sent.insert(sent.end(), drafts.tokens.begin(), drafts.tokens.end());
      }
    }
    // A window is sent, and of the next one all but the last token is ready.
    EXPECT_EQ(sent.size(), static_cast<std::size_t>(window));
    EXPECT_EQ(rank.summary().drafted, static_cast<std::uint64_t>(2 * window - 1));
  }
}

// After a turn without work a rank sleeps until it hears something. The first two of these requests
// take all of a call, and nothing is found for them.
TEST(DrafterRank, DoesNotSleepBeforeAllRequestsHadTheirTurn) {
  Responses truth;
  for (std::uint32_t sample = 0; sample < 4; ++sample)
    truth[{0, sample}].tokens.assign(sample < 2 ? 0 : 30, 5);
  Post post;
  SteppedClock clock;
  QuietTelemetry telemetry;
  SimulatedMailbox verifier(post, {0, Address::Port::role});
  SimulatedMailbox mailbox(post, {1, Address::Port::role});
  std::vector<std::unique_ptr<draft::Drafter>> drafters;
  drafters.push_back(std::make_unique<OracleDrafter>(truth, 1));
  DrafterRank rank(mailbox, clock, std::move(drafters), telemetry,
                   {.place = {1, 0}, .window = {4}, .max_batch = 2});
  for (const auto& [id, response] : truth)
    verifier.send({1, Address::Port::role}, encode(DraftOpen{0, id, {1, 2}, {}, {}, 0}));
  int turns = 0;
  while (rank.turn().worked) ASSERT_LT(++turns, 100) << "it never sleeps";
  std::map<RequestId, int> drafted;
  while (auto envelope = post.take({0, Address::Port::role})) {
    const Message message = decode(envelope->bytes);
    for (const DraftPiece& piece : std::get<Drafts>(message).pieces)
      drafted[piece.id] += piece.count;
  }
  EXPECT_EQ(drafted, (std::map<RequestId, int>{{{0, 2}, 4}, {{0, 3}, 4}}));
  EXPECT_EQ(rank.summary().drafted, 2 * 7U) << "of the next window all but a token is ready";
}

TEST_F(RemoteDrafterTest, DraftsFromBeforeARankWasToldAnewAreDropped) {
  start(kFirst);
  drafts({{{kFirst, 0, 0, 0, 2}}, {5, 6}, {1, 1}});
  mailbox.set_full(true);
  commit(kFirst, {5});
  remote.told();
  EXPECT_EQ(proposed(kFirst), std::vector<TokenId>{6});
  mailbox.set_full(false);
  remote.told();
  EXPECT_TRUE(proposed(kFirst).empty());
  drafts({{{kFirst, 2, 0, 0, 1}}, {7}, {1}});
  EXPECT_TRUE(proposed(kFirst).empty());
  drafts({{{kFirst, 1, 1, 0, 1}}, {8}, {1}});
  EXPECT_EQ(proposed(kFirst), std::vector<TokenId>{8});
}

TEST_F(RemoteDrafterTest, WhatMakesNoSenseIsCountedAndDropped) {
  start(kFirst);
  commit(kFirst, {1, 2, 3});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<Drafts> wrong{
      {{{kFirst, 3, 3, 0, 1}}, {40}, {1}},                 // no token
      {{{kFirst, 3, 3, 0, 1}}, {-1}, {1}},                 // likewise
      {{{kFirst, 3, 3, 0, 1}}, {5}, {nan}},                // scores
      {{{kFirst, 3, 3, 0, 1}}, {5}, {2}},                  //
      {{{kFirst, 3, 3, 0, 2}}, {5, 6}, {0.5F, 0.6F}},      //
      {{{kFirst, 2, 2, 0, 2}}, {3, 6}, {inf, inf}},        //
      {{{kFirst, 3, 3, 0, 1}}, {5}, {}},                   //
      {{{kFirst, 3, 3, 1, 1}}, {5}, {1}},                  // out of range
      {{{kFirst, 3, 3, -1, 2}}, {5}, {1}},                 //
      {{{kFirst, 3, 3, INT32_MAX, INT32_MAX}}, {5}, {1}},  //
      {{{kFirst, INT32_MAX, 0, 0, 1}}, {5}, {1}},          // further ahead than windows
      {{{kFirst, 3, 4, 0, 1}}, {5}, {1}},                  // knows what comes after it
      {{{kFirst, -1, -1, 0, 1}}, {5}, {1}},                //
      {{{kFirst, 3, 3, 0, 8}}, std::vector<TokenId>(8, 5), std::vector<float>(8, 1)},
  };
  std::uint64_t count = 0;
  for (const Drafts& d : wrong) {
    drafts(d);
    EXPECT_EQ(remote.counts().invalid, ++count);
    EXPECT_TRUE(proposed(kFirst).empty());
  }
  std::vector<std::byte> bytes = encode(Drafts{{{kFirst, 3, 3, 0, 1}}, {5}, {1}});
  bytes.push_back({});
  remote.receive(1, bytes);
  bytes.erase(bytes.end() - 2, bytes.end());
  remote.receive(1, bytes);
  remote.receive(1, {});
  remote.receive(1, encode(Finish{}));
  EXPECT_EQ(remote.counts().invalid, count + 4);
  // It says that it knows of tokens that have not been said.
  drafts({{{kFirst, 9, 9, 0, 1}}, {5}, {1}});
  EXPECT_TRUE(proposed(kFirst).empty());

  drafts({{{kFirst, 3, 3, 0, 1}}, {5}, {1}});
  EXPECT_EQ(proposed(kFirst), std::vector<TokenId>{5});
  EXPECT_EQ(warnings.size(), 1U) << "once a minute is enough";
  clock.time += 61;
  remote.receive(1, {});
  EXPECT_EQ(warnings.size(), 2U);
  remote.close();
  ASSERT_EQ(warnings.size(), 3U);
  EXPECT_NE(warnings[2].find("drafter rank 1, totals: 19 messages or drafts without sense"),
            std::string::npos);
}

TEST_F(RemoteDrafterTest, OfAFloodMostIsNotRead) {
  start(kFirst);
  const Drafts stale{{{kSecond, 0, 0, 0, 1}}, {5}, {1}};
  for (int i = 0; i < 5000; ++i) drafts(stale);
  EXPECT_EQ(remote.counts().flooded, 4000U);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("floods"), std::string::npos);
  remote.told();  // each step has its own
  drafts({{{kFirst, 0, 0, 0, 1}}, {5}, {1}});
  EXPECT_EQ(proposed(kFirst), std::vector<TokenId>{5});
}

TEST_F(RemoteDrafterTest, SilenceIsToldOnceAndItsEndToo) {
  start(kFirst);
  for (int step = 0; step < 100; ++step) {
    clock.time += 0.1;
    commit(kFirst, {1});
    remote.told();
  }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("has said nothing for 2s"), std::string::npos);
  remote.receive(1, encode(Finish{}));  // no sign of sense
  ASSERT_EQ(warnings.size(), 2U);
  drafts({});
  ASSERT_EQ(warnings.size(), 3U);
  EXPECT_NE(warnings[2].find("answers again after 10s"), std::string::npos);
}

}  // namespace
}  // namespace paceline::speculation
