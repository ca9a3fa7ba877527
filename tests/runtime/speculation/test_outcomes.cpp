// Drafts for what the target may say instead, from the drafter rank that makes them to the verifier
// that finds them there.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
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

using Text = std::vector<TokenId>;

struct Outcomes : ::testing::Test {
  Outcomes() {
    remote.start({kFirst, prompt, {}, {}, 0}, 0);
    while (post.take({1, Address::Port::role})) continue;
  }
  void commit(const Text& tokens) {
    remote.commit(kFirst, tokens, 0);
    remote.told();
  }
  /// A piece of the chain.
  void chain(std::int32_t base, std::int32_t known, const Text& tokens) {
    send({.id = kFirst, .base = base, .known = known}, tokens);
  }
  /// A piece of a branch that leaves at `leaves` by the token `instead`.
  void branch(std::int32_t leaves, TokenId instead, std::int32_t base, std::int32_t known,
              const Text& tokens) {
    send({.id = kFirst, .base = base, .known = known, .leaves = leaves, .instead = instead},
         tokens);
  }
  void send(DraftPiece piece, const Text& tokens) {
    piece.count = static_cast<std::int32_t>(tokens.size());
    remote.receive(1, encode(Drafts{{piece}, tokens, std::vector<float>(tokens.size(), 1)}));
  }
  Text proposed(const draft::DraftLimits& limits = {16, 16, 1}) {
    Text tokens(16);
    parents.resize(16);
    std::vector<float> scores(16);
    draft::DraftSlot slot{.id = kFirst, .limits = limits, .output = {tokens, parents, scores}};
    remote.propose({&slot, 1}, 0, nullptr);
    tokens.resize(slot.count);
    parents.resize(slot.count);
    return tokens;
  }
  Post post;
  SteppedClock clock;
  SimulatedMailbox mailbox{post, {0, Address::Port::role}};
  Text prompt{1, 2, 3};
  std::vector<std::int32_t> parents;  ///< of what was proposed last
  RemoteDrafter remote{mailbox,
                       clock,
                       {{1, 0}},
                       {.vocab = 40, .window = {4}, .patience = 2},
                       [](const std::string&) {}};
};

TEST_F(Outcomes, ABranchIsTheDraftWhereTheTargetTakesIt) {
  chain(0, 0, {10, 11, 12});
  branch(1, 21, 2, 0, {22});
  branch(2, 31, 3, 0, {32, 33});
  branch(1, 21, 3, 0, {23});
  EXPECT_EQ(proposed(), (Text{10, 11, 12}));
  commit({10, 21});
  EXPECT_EQ(proposed(), (Text{22, 23}));
  EXPECT_EQ(remote.counts().foreseen, 1U);
  EXPECT_EQ(remote.counts().stale, 2U + 2U) << "the chain's rest, and the other branch";
  // The rank has yet to hear of it: more of the branch comes as before, and more of what is
  // refuted.
  branch(1, 21, 4, 0, {24});
  chain(3, 0, {13});
  branch(2, 31, 5, 0, {34});
  EXPECT_EQ(proposed(), (Text{22, 23, 24}));
  // Now it has heard.
  chain(5, 2, {25});
  branch(3, 35, 4, 2, {36});
  EXPECT_EQ(proposed(), (Text{22, 23, 24, 25}));
  commit({22, 35});
  EXPECT_EQ(proposed(), Text{36});
}

TEST_F(Outcomes, ABranchThatComesAfterItsTokenIsTakenAsWell) {
  chain(0, 0, {10, 11});
  commit({10, 21});
  EXPECT_TRUE(proposed().empty());
  branch(1, 31, 2, 0, {32});  // the target said otherwise
  branch(1, 21, 3, 0, {23});  // its beginning is not there
  EXPECT_TRUE(proposed().empty());
  branch(1, 21, 2, 0, {22, 23});
  EXPECT_EQ(proposed(), (Text{22, 23}));
  commit({22});
  EXPECT_EQ(proposed(), Text{23});
  // Of a piece that was said in part the rest is taken.
  branch(1, 21, 4, 0, {24});
  commit({23, 24, 25});
  branch(1, 21, 5, 0, {25, 26});
  EXPECT_EQ(proposed(), Text{26});
}

TEST_F(Outcomes, ABranchThatIsRefutedBeforeItComesIsNoChain) {
  chain(0, 0, {10, 11});
  commit({10, 21});
  commit({30});  // the branch by 21 goes on otherwise
  branch(1, 21, 2, 0, {22});
  branch(1, 21, 3, 0, {23});
  chain(3, 2, {23});  // its rank has heard of 21 alone, and the branch is its chain
  EXPECT_TRUE(proposed().empty());
  chain(3, 3, {31});
  EXPECT_EQ(proposed(), Text{31});
  // The same with both tokens in one step.
  branch(4, 40 - 1, 5, 3, {16});
  commit({31, 39, 17});
  branch(4, 39, 6, 3, {18});
  chain(6, 5, {18});
  EXPECT_TRUE(proposed().empty());
  chain(6, 6, {19});
  EXPECT_EQ(proposed(), Text{19});
}

TEST_F(Outcomes, BranchesOfARefutedChainAreDropped) {
  chain(0, 0, {10, 11, 12});
  branch(2, 31, 3, 0, {32});
  commit({10, 20});
  EXPECT_TRUE(proposed().empty());
  branch(2, 31, 4, 0, {33});
  branch(3, 31, 4, 0, {33});
  commit({31});
  EXPECT_TRUE(proposed().empty());
  EXPECT_EQ(remote.counts().foreseen, 0U);
  // Refuted twice before the rank heard of the first: the first branch is of no use any more.
  chain(3, 2, {13, 14});
  branch(3, 40 - 1, 4, 2, {16});
  commit({39, 17});
  branch(3, 39, 5, 2, {18});
  EXPECT_TRUE(proposed().empty());
  branch(4, 17, 5, 2, {19});  // and this one left the chain that had been refuted first
  EXPECT_TRUE(proposed().empty());
  branch(4, 17, 5, 4, {19});
  EXPECT_EQ(proposed(), Text{19});
}

TEST_F(Outcomes, WhereSeveralPathsAreAskedForTheDraftIsATree) {
  chain(0, 0, {10, 11, 12});
  branch(1, 21, 2, 0, {22});
  branch(2, 31, 3, 0, {32, 33});
  branch(3, 35, 4, 0, {36});  // leaves past the chain
  EXPECT_EQ(proposed({16, 4, 2}), (Text{10, 11, 12, 21, 22, 31, 32}));
  EXPECT_EQ(parents, (std::vector<std::int32_t>{-1, 0, 1, 0, 3, 1, 5}));
  EXPECT_EQ(proposed({5, 4, 2}), (Text{10, 11, 12, 21, 22}));
  EXPECT_EQ(proposed({16, 2, 2}), (Text{10, 11, 21}));
  // The step went a branch's way and past its end.
  commit({10, 11, 31, 32});
  EXPECT_EQ(proposed(), Text{33});
  EXPECT_EQ(remote.counts().foreseen, 1U);
}

TEST_F(Outcomes, WhatMakesNoSenseIsCountedAndKeepsNothing) {
  commit({5, 6});
  std::uint64_t invalid = 0;
  const auto wrong = [&](std::int32_t leaves, TokenId instead, std::int32_t base,
                         std::int32_t known) {
    branch(leaves, instead, base, known, {7});
    EXPECT_EQ(remote.counts().invalid, ++invalid) << leaves;
  };
  wrong(2, 40, 3, 2);             // no token
  wrong(2, -1, 3, 2);             // likewise
  wrong(1, 9, 3, 2);              // leaves within the text that it knows
  wrong(3, 9, 3, 2);              // begins before it leaves
  wrong(-2, 9, 3, 2);             //
  wrong(INT32_MAX, 9, 3, 2);      //
  wrong(9, 9, 10, 2);             // further ahead than windows
  branch(100, 9, 101, 100, {7});  // it knows what was never said
  EXPECT_EQ(remote.counts().invalid, invalid);
  // Whatever comes, no more is kept than positions that a draft may reach.
  for (int round = 0; round < 1000; ++round) {
    for (std::int32_t leaves = 2; leaves < 8; ++leaves)
      branch(leaves, static_cast<TokenId>(round % 40), leaves + 1, 2, {7});
    remote.told();
  }
  EXPECT_EQ(remote.counts().stale, 6U * 999 + 1);
}

/// A verifier and its drafter rank, which has `calls` turns in each of the verifier's steps.
struct Pair {
  Pair(const Responses& responses, double accuracy, const CostCurve& costs)
      : truth(responses),
        rank(drafter_mailbox, clock, drafters(accuracy), telemetry,
             {.place = {1, 0}, .window = {4, 4}, .max_batch = 64, .calls = costs}) {
    remote.start({kFirst, Text{1, 2}, {}, {}, 0}, 0);
  }
  std::vector<std::unique_ptr<draft::Drafter>> drafters(double accuracy) {
    std::vector<std::unique_ptr<draft::Drafter>> made;
    made.push_back(std::make_unique<OracleDrafter>(truth, accuracy));
    return made;
  }
  /// Steps until the response is said.
  int decode(int calls) {
    const Text& said = truth.at(kFirst).tokens;
    std::size_t at = 0;
    int steps = 0;
    for (; at < said.size(); ++steps) {
      Text tokens(16);
      std::vector<std::int32_t> parents(16);
      std::vector<float> scores(16);
      draft::DraftSlot slot{
          .id = kFirst, .limits = {16, 16, 1}, .output = {tokens, parents, scores}};
      remote.propose({&slot, 1}, 0, nullptr);
      for (int call = 0; call < calls; ++call) rank.turn();
      while (auto envelope = post.take({0, Address::Port::role}))
        remote.receive(1, envelope->bytes);
      std::size_t committed = 1;
      while (committed <= static_cast<std::size_t>(slot.count) && at + committed < said.size() &&
             tokens[committed - 1] == said[at + committed - 1])
        ++committed;
      remote.commit(kFirst, std::span(said).subspan(at, committed), 0);
      remote.told();
      at += committed;
    }
    return steps;
  }
  const Responses& truth;
  Post post;
  SteppedClock clock;
  QuietTelemetry telemetry;
  SimulatedMailbox mailbox{post, {0, Address::Port::role}};
  SimulatedMailbox drafter_mailbox{post, {1, Address::Port::role}};
  RemoteDrafter remote{
      mailbox, clock, {{1, 0}}, {.vocab = 40, .window = {4, 4}}, [](const std::string&) {}};
  DrafterRank rank;
};

TEST(OutcomesOfAPair, StepsAfterForeseenRefutationsHaveDrafts) {
  Responses truth;
  for (int i = 0; i < 2000; ++i) truth[kFirst].tokens.push_back(i * 7 % 40);
  const CostCurve free({{1, 1}, {64, 1}});
  Pair without(truth, 0.8, {});
  Pair with(truth, 0.8, free);
  const int before = without.decode(4);
  const int after = with.decode(4);
  EXPECT_LT(after, before * 0.9) << "a draft was there after every other refutation";
  EXPECT_EQ(without.remote.counts().foreseen, 0U);
  EXPECT_GT(with.remote.counts().foreseen, 60U);
  EXPECT_EQ(with.remote.counts().invalid, 0U);
  EXPECT_LE(with.rank.summary().most_wasted, 7U);
  EXPECT_EQ(with.rank.tallies()[0].accepted, with.rank.summary().accepted);
  // Branches that cost as much as the chain's next token are not drafted before it.
  Pair dear(truth, 1, CostCurve({{1, 1}, {2, 2}}));
  EXPECT_EQ(dear.decode(4), Pair(truth, 1, {}).decode(4));
}

/// Tokens of the longest piece that the rank sends in one turn.
int longest_piece(DrafterRank& rank, SimulatedMailbox& verifier) {
  rank.turn();
  int longest = 0;
  while (const auto envelope = verifier.poll()) {
    const auto drafts = std::get<Drafts>(decode(envelope->bytes));
    for (const DraftPiece& piece : drafts.pieces) longest = std::max(longest, piece.count);
  }
  return longest;
}

TEST(ARank, IsEagerWhileOneCallDraftsForAllItsRequests) {
  Post post;
  SteppedClock clock;
  QuietTelemetry telemetry;
  SimulatedMailbox verifier{post, {0, Address::Port::role}};
  SimulatedMailbox own{post, {1, Address::Port::role}};
  Responses truth;
  for (std::uint32_t sample = 0; sample < 3; ++sample)
    truth[{0, sample}].tokens = Text(40, static_cast<TokenId>(sample));
  std::vector<std::unique_ptr<draft::Drafter>> drafters;
  drafters.push_back(std::make_unique<OracleDrafter>(truth, 1));
  DrafterRank rank(own, clock, std::move(drafters), telemetry,
                   {.place = {1, 0}, .window = {3, 4}, .max_batch = 2});
  for (std::uint32_t sample = 0; sample < 3; ++sample) {
    verifier.send({1, Address::Port::role},
                  encode(DraftOpen{0, {0, sample}, Text{1, 2}, {}, {}, 0, {}}));
  }
  EXPECT_EQ(longest_piece(rank, verifier), 3) << "a window, for three requests need two calls";
  verifier.send({1, Address::Port::role},
                encode(DraftCommits{0, {{{0, 2}, 0, 0, DraftEnd::finished}}, {}}));
  EXPECT_EQ(longest_piece(rank, verifier), 1);
  EXPECT_EQ(longest_piece(rank, verifier), 1);
}

struct ListeningDrafter final : draft::Drafter {
  void start(const draft::DraftStart& /*start*/, double /*now*/) override { ++started; }
  void commit(RequestId /*id*/, std::span<const TokenId> tokens, double /*now*/) override {
    committed.insert(committed.end(), tokens.begin(), tokens.end());
  }
  void finish(RequestId /*id*/, double /*now*/) override {}
  draft::Capabilities capabilities() override { return {}; }
  void propose(std::span<draft::DraftSlot> batch, double /*now*/,
               draft::Levels* /*levels*/) override {
    for (draft::DraftSlot& slot : batch) slot.count = 0;
  }
  int started = 0;
  Text committed;
};

TEST(ARankThatDidNotRead, ComputesNoTextAgain) {
  Post post;
  SteppedClock clock;
  QuietTelemetry telemetry;
  SimulatedMailbox verifier{post, {0, Address::Port::role}};
  SimulatedMailbox own{post, {1, Address::Port::role}};
  auto made = std::make_unique<ListeningDrafter>();
  ListeningDrafter& drafter = *made;
  std::vector<std::unique_ptr<draft::Drafter>> drafters;
  drafters.push_back(std::move(made));
  DrafterRank rank(own, clock, std::move(drafters), telemetry, {.place = {1, 0}});
  const auto open = [&](const Text& response, std::uint64_t version) {
    verifier.send({1, Address::Port::role},
                  encode(DraftOpen{0, kFirst, {1, 2}, response, {}, version, {}}));
    rank.turn();
  };
  open({10}, 0);
  open({10, 11, 12}, 0);  // the verifier held back what it had to say, and says all of it
  EXPECT_EQ(drafter.started, 1);
  EXPECT_EQ(drafter.committed, (Text{11, 12}));
  open({10}, 0);  // less than is known
  EXPECT_EQ(drafter.started, 2);
  open({10, 11}, 1);  // of another holder
  EXPECT_EQ(drafter.started, 3);
  EXPECT_EQ(drafter.committed, (Text{11, 12}));
}

}  // namespace
}  // namespace paceline::speculation
