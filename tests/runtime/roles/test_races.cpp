// What groups that race for one request tell each other.
#include <gtest/gtest.h>

#include "runtime/roles/races.hpp"
#include "tests/runtime/roles/simulated_mailbox.hpp"

namespace paceline::roles {
namespace {

using Tokens = std::vector<TokenId>;
constexpr RequestId kId{3, 1};

/// A verifier's races, and what it is told.
struct Group {
  Group(test::Post& post, int leader)
      : rank(leader), mailbox(post, {leader, Address::Port::role}), races(mailbox, 100) {}
  /// Hears all that there is; whether it was told to race no longer.
  bool listen() {
    bool over = false;
    while (const std::optional<Envelope> envelope = mailbox.poll()) {
      const protocol::Message message = protocol::decode(envelope->bytes);
      over = races.hear(envelope->from.rank, std::get<protocol::RaceCommit>(message)) || over;
      ++messages;
    }
    return over;
  }
  [[nodiscard]] Tokens foretold() const {
    const auto next = races.foretold(kId);
    return {next.begin(), next.end()};
  }
  int rank;
  test::SimulatedMailbox mailbox;
  Races races;
  int messages = 0;
};

/// A group that holds a request of two tokens, and two that race for it.
struct RaceOfThree : ::testing::Test {
  RaceOfThree() {
    std::uint64_t key = 7;
    for (Group* racer : {&first, &second}) {
      racer->races.join(kId, 2, holder.rank, key);
      holder.races.offer(kId, 2, racer->rank, key++);
    }
  }
  test::Post post;
  Group holder{post, 0}, first{post, 2}, second{post, 4};
};

TEST_F(RaceOfThree, WhatOneCommitsIsForetoldToAll) {
  first.races.committed(kId, Tokens{3, 4, 5});
  EXPECT_FALSE(holder.listen());
  EXPECT_EQ(holder.foretold(), (Tokens{3, 4, 5}));
  EXPECT_FALSE(second.listen()) << "the holder passes it on at once";
  EXPECT_EQ(second.foretold(), (Tokens{3, 4, 5}));
  holder.races.committed(kId, Tokens{3, 4});
  EXPECT_EQ(holder.foretold(), (Tokens{5}));
  second.races.committed(kId, Tokens{3, 4, 5, 6});
  EXPECT_TRUE(second.foretold().empty());
  EXPECT_FALSE(holder.listen());
  EXPECT_EQ(holder.foretold(), (Tokens{5, 6}));
  EXPECT_FALSE(first.listen());
  EXPECT_EQ(first.foretold(), (Tokens{6}));
  EXPECT_EQ(holder.races.gained(), 4U);
  EXPECT_EQ(first.races.gained(), 0U) << "its own responses alone";
  EXPECT_EQ(first.messages, 1) << "nobody is told what it has said";
}

TEST_F(RaceOfThree, WhoeverComesLaterLearnsWhatIsKnown) {
  first.races.committed(kId, Tokens{3, 4, 5});
  EXPECT_FALSE(holder.listen());
  Group third(post, 6);
  third.races.join(kId, 2, holder.rank, 9);
  holder.races.offer(kId, 2, third.rank, 9);
  EXPECT_FALSE(third.listen());
  EXPECT_EQ(third.foretold(), (Tokens{3, 4, 5}));
}

TEST_F(RaceOfThree, TheHoldersEndEndsIt) {
  EXPECT_TRUE(first.races.races_for(kId));
  EXPECT_FALSE(holder.races.races_for(kId));
  holder.races.committed(kId, Tokens{3});
  EXPECT_EQ(holder.races.end(kId), 0U) << "it does not race";
  EXPECT_TRUE(first.listen());
  EXPECT_EQ(first.races.end(kId), 7U);
  EXPECT_FALSE(first.races.races_for(kId));
  EXPECT_FALSE(holder.listen()) << "of what has ended nothing is of interest";
  EXPECT_TRUE(holder.foretold().empty());
}

TEST_F(RaceOfThree, ARacerMayGiveUpAndComeBack) {
  first.races.committed(kId, Tokens{3});
  EXPECT_EQ(first.races.end(kId), 7U);
  EXPECT_FALSE(holder.listen());
  EXPECT_EQ(holder.foretold(), (Tokens{3})) << "what it said holds";
  holder.races.committed(kId, Tokens{3, 4});
  EXPECT_FALSE(first.listen());
  EXPECT_EQ(first.messages, 0) << "it is told nothing more";
  first.races.join(kId, 4, holder.rank, 9);
  holder.races.offer(kId, 4, first.rank, 9);
  holder.races.committed(kId, Tokens{5});
  EXPECT_FALSE(first.listen());
  EXPECT_EQ(first.foretold(), (Tokens{5}));
}

// The request goes away and comes back, before the racer has answered.
TEST_F(RaceOfThree, WhatWasSaidOfAnEarlierRaceEndsNoLaterOne) {
  EXPECT_EQ(holder.races.end(kId), 0U);
  EXPECT_TRUE(first.listen());
  EXPECT_EQ(first.races.end(kId), 7U);
  EXPECT_FALSE(holder.listen());
  EXPECT_EQ(holder.messages, 0) << "who is told that it is over has nothing to answer";
  EXPECT_EQ(second.races.end(kId), 8U) << "before it has heard of it";
  for (Group* racer : {&first, &second}) {
    racer->races.join(kId, 2, holder.rank, 10 + racer->rank);
    holder.races.offer(kId, 2, racer->rank, 10 + racer->rank);
  }
  EXPECT_FALSE(holder.listen());
  EXPECT_FALSE(second.listen());
  holder.races.committed(kId, Tokens{3});
  EXPECT_FALSE(second.listen());
  EXPECT_EQ(second.foretold(), (Tokens{3}));
}

TEST_F(RaceOfThree, NothingIsBelieved) {
  const auto hear = [&](int from, const protocol::RaceCommit& news) {
    return holder.races.hear(from, news);
  };
  EXPECT_FALSE(hear(9, {kId, 7, 2, 1, {3}})) << "who does not race";
  EXPECT_FALSE(hear(2, {kId, 8, 2, 1, {3}})) << "in a race that is over";
  EXPECT_FALSE(hear(2, {{5, 5}, 7, 2, 1, {3}})) << "what is not raced for";
  EXPECT_FALSE(hear(2, {kId, 7, -1, 0, {3}}));
  EXPECT_FALSE(hear(2, {kId, 7, 2, 0, {100}}));
  EXPECT_FALSE(hear(2, {kId, 7, 3, 0, {8}})) << "with a gap";
  EXPECT_TRUE(holder.foretold().empty());
  EXPECT_FALSE(hear(2, {kId, 7, 2, 0, {9, 9, 9}}));
  EXPECT_EQ(holder.foretold(), (Tokens{9, 9, 9}));
  holder.races.committed(kId, Tokens{9, 3});
  EXPECT_TRUE(holder.foretold().empty()) << "the target has said otherwise";
  EXPECT_FALSE(second.listen());
  second.races.committed(kId, Tokens{9, 3});
  EXPECT_TRUE(second.foretold().empty());
  EXPECT_THROW(second.races.join(kId, 2, 0, 9), std::logic_error);
  EXPECT_THROW(second.races.offer(kId, 2, 0, 9), std::logic_error);
}

}  // namespace
}  // namespace paceline::roles
