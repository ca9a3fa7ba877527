// Answers taken into responses.
#include "runtime/core/environment.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace paceline {
namespace {

/// A response whose turn has ended with this many tokens.
Trajectory response(std::size_t tokens, FinishReason reason = FinishReason::stop_id) {
  Trajectory t;
  t.tokens.assign(tokens, 7);
  t.logprob.assign(tokens, -1.0F);
  t.sampling_logprob.assign(tokens, -0.5F);
  t.finish_reason = reason;
  t.reward = NAN;
  return t;
}

EnvironmentReply reply(std::size_t tokens, float reward = NAN) {
  EnvironmentReply r;
  r.tokens.assign(tokens, 9);
  r.by = GivenBy::tool;
  r.reward = reward;
  return r;
}

const ConversationLimits kLimits{.max_turns = 3, .max_tokens = 20, .context = 100};

TEST(Conversation, GoesOnWithTheGivenTokens) {
  Trajectory t = response(4);
  EXPECT_EQ(t.turn_begin(), 0U);
  ASSERT_TRUE(take_reply(t, reply(3), 10, kLimits));
  EXPECT_EQ(t.tokens, (std::vector<TokenId>{7, 7, 7, 7, 9, 9, 9}));
  EXPECT_EQ(t.logprob, (std::vector<float>{-1, -1, -1, -1, 0, 0, 0}));
  EXPECT_EQ(t.sampling_logprob.back(), 0);
  EXPECT_TRUE(t.kept.empty());
  EXPECT_EQ(t.finish_reason, FinishReason::partial);
  ASSERT_EQ(t.turns.size(), 1U);
  EXPECT_EQ(t.turns[0].given, 4U);
  EXPECT_EQ(t.turns[0].end, 7U);
  EXPECT_EQ(t.turns[0].by, GivenBy::tool);
  EXPECT_EQ(t.turns[0].reason, FinishReason::stop_id);
  EXPECT_EQ(t.turn_begin(), 7U);
}

TEST(Conversation, EndsWithItsLastTurnsReasonWhenItIsDone) {
  Trajectory t = response(4, FinishReason::stop_string);
  EnvironmentReply done = reply(0, 0.5F);
  done.done = true;
  done.extra = "{\"a\":1}";
  EXPECT_FALSE(take_reply(t, done, 10, kLimits));
  EXPECT_EQ(t.finish_reason, FinishReason::stop_string);
  EXPECT_EQ(t.reward, 0.5F);
  EXPECT_EQ(t.reward_extra, done.extra);
  EXPECT_EQ(t.tokens.size(), 4U);
  EXPECT_EQ(t.turns.size(), 1U);
}

TEST(Conversation, RewardsAddUpAndTheScorersStands) {
  for (const bool own : {true, false}) {
    Trajectory t = response(2);
    ConversationLimits limits = kLimits;
    limits.rewards = own;
    ASSERT_TRUE(take_reply(t, reply(2, 1.5F), 10, limits));
    ASSERT_TRUE(take_reply(t, reply(2), 10, limits));
    EnvironmentReply done = reply(0, 0.25F);
    done.done = true;
    EXPECT_FALSE(take_reply(t, done, 10, limits));
    if (own) {
      EXPECT_EQ(t.reward, 1.75F);
    } else {
      EXPECT_TRUE(std::isnan(t.reward));
    }
  }
}

TEST(Conversation, EndsAtItsLimits) {
  Trajectory full = response(20, FinishReason::length);
  EXPECT_FALSE(take_reply(full, reply(1), 10, kLimits));
  EXPECT_EQ(full.finish_reason, FinishReason::length);

  Trajectory no_room = response(10);
  EXPECT_FALSE(take_reply(no_room, reply(10), 10, kLimits));
  EXPECT_EQ(no_room.finish_reason, FinishReason::length);
  EXPECT_EQ(no_room.tokens.size(), 10U);

  Trajectory no_context = response(10);
  EXPECT_FALSE(take_reply(no_context, reply(5), 85, kLimits));
  EXPECT_EQ(no_context.finish_reason, FinishReason::context);

  Trajectory many = response(1);
  EXPECT_TRUE(take_reply(many, reply(1), 10, kLimits));
  EXPECT_TRUE(take_reply(many, reply(1), 10, kLimits));
  EXPECT_FALSE(take_reply(many, reply(1), 10, kLimits));
  EXPECT_EQ(many.finish_reason, FinishReason::turns);
  EXPECT_EQ(many.turns.size(), 3U);
}

TEST(Conversation, FailsWithWhatItHas) {
  Trajectory t = response(4);
  ASSERT_TRUE(take_reply(t, reply(3, 1.0F), 10, kLimits));
  EnvironmentReply failed;
  failed.failed = true;
  EXPECT_FALSE(take_reply(t, failed, 10, kLimits));
  EXPECT_EQ(t.finish_reason, FinishReason::failed);
  EXPECT_EQ(t.tokens.size(), 7U);
  EXPECT_EQ(t.turns.size(), 1U);
  EXPECT_EQ(t.reward, 1.0F);
}

TEST(Conversation, NoIdsAreKeptOfGivenTokens) {
  Trajectory t = response(2);
  t.kept = {1, 2};
  t.kept_ids = {7, 7, 8};
  ConversationLimits limits = kLimits;
  limits.keep_masks = true;
  limits.logprobs = 1;
  t.top_ids = {5, 6};
  t.top_logprob = {-1, -2};
  ASSERT_TRUE(take_reply(t, reply(2), 10, limits));
  EXPECT_EQ(t.kept, (std::vector<std::int32_t>{1, 2, 0, 0}));
  EXPECT_EQ(t.top_ids, (std::vector<TokenId>{5, 6, -1, -1}));
  EXPECT_EQ(t.top_logprob, (std::vector<float>{-1, -2, 0, 0}));
}

TEST(Conversation, ItsTurnsAreInTheDigest) {
  const auto digest_of = [](const Trajectory& t) {
    TrajectoryDigest digest;
    digest.add("u", std::vector<TokenId>{1}, t);
    return digest.hex();
  };
  Trajectory t = response(6);
  const std::string plain = digest_of(t);
  t.turns.push_back({.given = 2, .end = 4});
  const std::string other = digest_of(t);
  EXPECT_NE(plain, other);
  t.turns[0].seconds = 3;
  t.turns[0].reward = 1;
  EXPECT_EQ(digest_of(t), other);
  t.turns[0].end = 5;
  EXPECT_NE(digest_of(t), other);
}

}  // namespace
}  // namespace paceline
