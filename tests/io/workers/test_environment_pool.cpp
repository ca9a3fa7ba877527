// Workers that answer turns, and all the ways in which they do not.
#include "io/workers/environment_pool.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "io/text/chat_template.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

namespace paceline::io {
namespace {

class TestClock final : public Clock {
 public:
  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Of a shell: reads a turn, with its id in $id, its number in $turn and `replay` in $replay.
const std::string kRead =
    R"(read -r line || exit 0; id=${line#*\"id\":\"}; id=${id%%\"*}; )"
    R"(turn=${line#*\"turn\":}; turn=${turn%%,*}; replay=${line#*\"replay\":}; )"
    R"(case $line in *\"replay\"*) replay=1;; *) replay=0;; esac; )";
/// Answers it with these members.
std::string answer(const std::string& members) {
  return R"(echo "{\"id\":\"$id\",)" + members + R"(}"; )";
}
std::string loop(const std::string& body) { return "while :; do " + kRead + body + "done"; }

class EnvironmentPoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<EnvironmentPool> pool(const std::string& script) {
    settings_.method = EnvironmentMethod::command;
    settings_.command = {"sh", "-c", script};
    return std::make_unique<EnvironmentPool>(
        settings_, scenes_, tokenizer_, TurnEncoder(chat_, tokenizer_, {}),
        EnvironmentRun{300,
                       40,
                       [] {},
                       [this](const std::string& text) { warnings_.push_back(text); },
                       {298, 299}},
        clock_);
  }
  static Trajectory response(std::uint32_t sample, std::size_t answered = 0) {
    Trajectory t;
    t.id = {0, sample};
    for (std::size_t turn = 0; turn < answered; ++turn) {
      t.turns.push_back({.given = static_cast<std::uint32_t>(2 * turn + 1),
                         .end = static_cast<std::uint32_t>(2 * turn + 2)});
    }
    t.tokens.assign(2 * answered + 1, 5);
    t.finish_reason = FinishReason::stop_id;
    return t;
  }
  static std::vector<EnvironmentReply> replies(EnvironmentPool& pool, std::size_t count) {
    std::vector<EnvironmentReply> all;
    for (int moment = 0; all.size() < count && moment < 20000; ++moment) {
      ::usleep(1000);
      for (EnvironmentReply& reply : pool.take()) all.push_back(std::move(reply));
    }
    EXPECT_EQ(all.size(), count);
    return all;
  }
  EnvironmentReply only(EnvironmentPool& pool, const Trajectory& response) {
    pool.ask(response, true);
    std::vector<EnvironmentReply> all = replies(pool, 1);
    return all.empty() ? EnvironmentReply() : all.front();
  }

  EnvironmentSection settings_;
  TestClock clock_;
  Tokenizer tokenizer_ = Tokenizer::parse(tiny::document().dump(), "t.json");
  ChatTemplate chat_;
  std::vector<std::string> scenes_{"\"uid\":\"a\","};
  std::vector<std::string> warnings_;
};

TEST_F(EnvironmentPoolTest, AnswersComeBackToTheirConversations) {
  const auto p = pool(loop(answer(R"(\"observation\":[1,2,${id#*:}],\"reward\":0.5)")));
  for (std::uint32_t i = 0; i < 20; ++i) p->ask(response(i), true);
  std::map<std::uint32_t, EnvironmentReply> by_sample;
  for (const EnvironmentReply& reply : replies(*p, 20)) by_sample[reply.id.sample] = reply;
  ASSERT_EQ(by_sample.size(), 20U);
  for (const auto& [sample, reply] : by_sample) {
    EXPECT_EQ(reply.tokens, (std::vector<TokenId>{1, 2, static_cast<TokenId>(sample)}));
    EXPECT_EQ(reply.by, GivenBy::tokens);
    EXPECT_EQ(reply.reward, 0.5F);
    EXPECT_FALSE(reply.done || reply.failed);
    EXPECT_GT(reply.seconds, 0);
  }
}

TEST_F(EnvironmentPoolTest, TextIsEncodedAsItIsWithoutATemplate) {
  const auto p = pool(loop(answer(R"(\"observation\":\"ab\")")));
  const EnvironmentReply reply = only(*p, response(0));
  EXPECT_EQ(reply.tokens, tokenizer_.encode("ab"));
  EXPECT_EQ(reply.by, GivenBy::user);
}

TEST_F(EnvironmentPoolTest, OfALastTurnNothingGivenCounts) {
  const auto p = pool(loop(answer(R"(\"reward\":2)")));
  p->ask(response(0), false);
  const EnvironmentReply reply = replies(*p, 1).front();
  EXPECT_FALSE(reply.failed);
  EXPECT_EQ(reply.reward, 2);
  EXPECT_TRUE(reply.tokens.empty());
}

TEST_F(EnvironmentPoolTest, AConversationStaysWithItsWorkerAndIsReplayedToAnother) {
  // The observation is how many turns this process has been told of the conversation.
  settings_.workers = 3;
  const std::string count = R"sh(eval "n=\$((\${c${id#*:}:-0} + 1))"; eval "c${id#*:}=$n"; )sh";
  const auto p = pool(loop(count + R"([ "$turn" = $((n - 1)) ] || exit 1; )" +
                           R"([ "$id$turn$replay" != 0:110 ] || exit 2; )" +
                           answer(R"(\"observation\":[$n,$replay])")));
  for (std::size_t turn = 0; turn < 3; ++turn) {
    for (std::uint32_t i = 2; i < 8; ++i) p->ask(response(i, turn), true);
    for (const EnvironmentReply& reply : replies(*p, 6))
      EXPECT_EQ(reply.tokens, (std::vector<TokenId>{static_cast<TokenId>(turn + 1), 0}));
  }
  // Another that begins elsewhere: two turns are replayed before the third is asked.
  EXPECT_EQ(only(*p, response(9, 2)).tokens, (std::vector<TokenId>{3, 0}));
  // Its worker dies at its second turn, each time.
  EXPECT_FALSE(only(*p, response(1, 0)).failed);
  EXPECT_TRUE(only(*p, response(1, 1)).failed);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_EQ(
      warnings_[0],
      "the conversation of prompt 0 sample 1 failed: an environment worker exited with code 2");
  // Those that shared it go on elsewhere.
  for (std::uint32_t i = 2; i < 8; ++i)
    EXPECT_EQ(only(*p, response(i, 3)).tokens, (std::vector<TokenId>{4, 0}));
}

TEST_F(EnvironmentPoolTest, AWorkerMayGiveAConversationUp) {
  const auto p = pool(loop(answer(R"(\"error\":\"no\")")));
  EXPECT_TRUE(only(*p, response(0)).failed);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_NE(warnings_[0].find("an environment worker says: no"), std::string::npos);
}

TEST_F(EnvironmentPoolTest, WhatIsNoAnswerFailsInTheEnd) {
  settings_.workers = 1;
  settings_.timeout = 0.3;
  const std::pair<std::string, std::string> cases[] = {
      {answer(R"(\"observation\":[1,300])"), "token 300, where the model has ids below 300"},
      {answer(R"(\"observation\":[1,299])"), "token 299, which stands for a picture or a film"},
      {answer(R"(\"observation\":[-1])"), "neither text, messages nor token ids as observation"},
      {answer(R"(\"observation\":[1,\"a\"])"), "neither text, messages nor token ids"},
      {answer(R"(\"observation\":[])"), "neither text, messages nor token ids"},
      {answer(R"(\"observation\":[{\"role\":\"tool\"}])"), "neither text, messages nor"},
      {answer(R"(\"observation\":[{\"role\":\"tool\",\"content\":\"x\"}])"),
       "an observation that cannot be encoded: there is no chat template"},
      {answer(R"(\"observation\":[)" +
              [] {
                std::string ids = "1";
                for (int i = 1; i < 40; ++i) ids += ",1";
                return ids;
              }() +
              "]"),
       "an observation of 40 tokens, where the model has a context of 40"},
      {answer(R"(\"done\":1)"), "neither true nor false as done"},
      {answer(R"(\"reward\":1)"), "neither an observation nor done"},
      {answer(R"(\"done\":true,\"reward\":\"x\")"), "no number as reward"},
      {answer(R"(\"done\":true,\"extra\":3)"), "no object as extra"},
      {R"(printf '{"id":"0:0","observation":"\\377"}\n'; )", "no JSON object"},
      {R"(echo '{"id":"7:7"}'; )", "not the id 0:0"},
      {"sleep 100; ", "said nothing for 0.3 s (environment.timeout)"},
      {"exit 4; ", "exited with code 4"},
  };
  for (const auto& [body, expected] : cases) {
    warnings_.clear();
    const auto p = pool(
        loop("case $id in 0:9) " + answer(R"(\"done\":true)") + ";; *) " + body + ";; esac; "));
    EXPECT_TRUE(only(*p, response(9)).done) << "failures count from the first answer on";
    EXPECT_TRUE(only(*p, response(0)).failed) << body;
    ASSERT_EQ(warnings_.size(), 1U) << body;
    EXPECT_NE(warnings_[0].find(expected), std::string::npos) << warnings_[0];
  }
}

TEST_F(EnvironmentPoolTest, AnAnswerThatCannotBeUsedIsTheConversationsFailure) {
  settings_.workers = 1;
  // The number of answers that this process has given.
  const auto p = pool(loop(
      R"(n=$((n + 1)); case $id in 0:0) )" + answer(R"(\"observation\":[1,300])") + ";; 0:1) " +
      answer(R"(\"done\":1)") + ";; *) " + answer(R"(\"observation\":[$n])") + ";; esac; "));
  EXPECT_TRUE(only(*p, response(0)).failed);
  EXPECT_TRUE(only(*p, response(1)).failed);
  EXPECT_EQ(only(*p, response(2)).tokens, (std::vector<TokenId>{3})) << "the worker is kept";
  EXPECT_EQ(warnings_.size(), 2U);
}

TEST_F(EnvironmentPoolTest, WithoutWorkersNoConversationFailsButTheRank) {
  const auto thrown = [](EnvironmentPool& pool) -> std::optional<Error> {
    for (int moment = 0; moment < 20000; ++moment) {
      ::usleep(1000);
      try {
        EXPECT_TRUE(pool.take().empty());
      } catch (const Error& error) {
        return error;
      }
    }
    return std::nullopt;
  };
  const auto never = pool("exit 3");
  never->ask(response(0), true);
  never->leave({0, 0});
  never->ask(response(1), true);
  const std::optional<Error> none = thrown(*never);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->code(), ExitCode::bad_data);
  EXPECT_STREQ(none->what(),
               "environment.command: no worker has ever answered, and the last one exited with "
               "code 3");

  settings_.attempts = 100;
  const auto once = pool(kRead + "[ $id = 0:9 ] || exit 1; " + answer(R"(\"done\":true)"));
  EXPECT_TRUE(only(*once, response(9)).done);
  for (std::uint32_t i = 0; i < 5; ++i) once->ask(response(i), true);
  const std::optional<Error> late = thrown(*once);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->code(), ExitCode::try_again);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(EnvironmentPoolTest, WhatAWorkerThatIsGivenUpLeavesBehindWakesAnIdleOne) {
  // The second conversation is the second worker's, which says nothing until it is given up.
  settings_.attempts = 100;
  settings_.timeout = 0.3;
  std::string folder = (std::filesystem::temp_directory_path() / "paceline-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto p =
      pool(loop(R"(if [ $id = 0:1 ]; then echo >>)" + folder + R"(/asked; [ $(wc -l <)" + folder +
                R"(/asked) -gt 5 ] || sleep 100; fi; )" + answer(R"(\"observation\":[7])")));
  EXPECT_FALSE(only(*p, response(0)).failed);
  EXPECT_EQ(only(*p, response(1)).tokens, (std::vector<TokenId>{7}));
  std::filesystem::remove_all(folder);
}

TEST_F(EnvironmentPoolTest, ALeftConversationIsClosedAndMayBeginAgain) {
  settings_.workers = 1;
  const auto p = pool(loop(R"(case $line in *\"close\"*) c=$((c + 1));; esac; )" +
                           answer(R"(\"observation\":[${c:-0},$replay])")));
  EXPECT_EQ(only(*p, response(0)).tokens, (std::vector<TokenId>{0, 0}));
  p->leave({0, 0});
  p->leave({0, 5});  // never known here
  EXPECT_EQ(only(*p, response(1)).tokens, (std::vector<TokenId>{1, 0}));
  EXPECT_EQ(only(*p, response(0, 1)).tokens, (std::vector<TokenId>{1, 0}));
}

// A request that moves to and fro is left twice while its worker is slow to close it. It begins
// again with another worker before the second closing is looked at: the crew's thread waits for
// processes that end, of worker 0 first, then, after the first closing, of worker 2.
TEST_F(EnvironmentPoolTest, AConversationThatWasLeftTwiceMayBeginAgainWithAnotherWorker) {
  settings_.workers = 3;
  settings_.attempts = 1;
  const std::string ends = "exec >&-; sleep 0.3; exit";
  const auto p =
      pool(loop(R"(case $line in *\"close\"*) sleep 0.05;; esac; )"
                R"(case $id$turn in 0:01) )" +
                ends + ";; 0:21) sleep 0.05; " + ends + ";; esac; " + "if [ $replay = 0 ]; then " +
                answer(R"(\"observation\":[7])") + "else " + answer(R"(\"known\":1)") + "fi; "));
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_FALSE(only(*p, response(i)).failed);
  p->leave({0, 1});
  p->leave({0, 1});
  p->ask(response(2, 1), true);
  p->ask(response(0, 1), true);
  ::usleep(150'000);
  p->ask(response(1, 1), true);
  for (const EnvironmentReply& reply : replies(*p, 3))
    EXPECT_EQ(reply.failed, reply.id.sample != 1) << reply.id.sample;
}

TEST(EnvironmentLine, HasTheTurnAndWhatWasGivenBefore) {
  const Tokenizer tokenizer = Tokenizer::parse(tiny::document().dump(), "t.json");
  Trajectory t;
  t.id = {3, 1};
  t.tokens = tokenizer.encode("abcd");
  t.tokens.resize(4, t.tokens.back());
  t.turns.push_back({.given = 1, .end = 3, .reason = FinishReason::length});
  t.finish_reason = FinishReason::stop_id;
  const std::string first = turn_line(t, 0, "\"uid\":\"a\",", tokenizer, {.replay = true});
  EXPECT_NE(first.find("{\"id\":\"3:1\",\"turn\":0,\"uid\":\"a\",\"text\":"), std::string::npos)
      << first;
  EXPECT_NE(
      first.find("\"finish_reason\":\"length\",\"last\":false,\"replay\":true,\"observation\":["),
      std::string::npos)
      << first;
  const std::string second = turn_line(t, 1, "", tokenizer, {.last = true});
  EXPECT_NE(second.find("\"turn\":1,"), std::string::npos);
  EXPECT_NE(second.find("\"finish_reason\":\"stop_id\",\"last\":true}\n"), std::string::npos)
      << second;
}

}  // namespace
}  // namespace paceline::io
