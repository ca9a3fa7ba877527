// Workers that do as they should, and all the ways in which they do not.
#include "io/workers/worker_pool.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "io/workers/worker_process.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

namespace paceline::io {
namespace {

using std::chrono::steady_clock;

class TestClock final : public Clock {
 public:
  double now() const override {
    return std::chrono::duration<double>(steady_clock::now() - start_).count();
  }

 private:
  steady_clock::time_point start_ = steady_clock::now();
};

/// Of a shell: reads a request, with its id in $id.
const std::string kRead = R"(read -r line || exit 0; id=${line#*\"id\":\"}; id=${id%%\"*}; )";
/// Answers it with so much.
std::string answer(const std::string& score) {
  return R"(echo "{\"id\":\"$id\",\"score\":)" + score + R"(}"; )";
}

class WorkerPoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "paceline-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  RewardSection settings(const std::string& script) const {
    RewardSection s;
    s.method = RewardMethod::command;
    s.command = {"sh", "-c", "echo $$ >>" + pids() + "; " + script};
    s.timeout = 20;
    return s;
  }
  std::string pids() const { return (folder_ / "pids").string(); }

  std::unique_ptr<WorkerPool> pool(const RewardSection& s) {
    return std::make_unique<WorkerPool>(s, subjects_, tokenizer_, clock_);
  }
  static Trajectory response(std::uint32_t sample) {
    Trajectory t;
    t.id = {1, sample};
    t.tokens = {259};
    t.finish_reason = FinishReason::stop_id;
    return t;
  }
  /// What becomes of so many responses, by sample.
  static std::map<std::uint32_t, Score> scores(WorkerPool& pool, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) pool.submit(response(i));
    std::map<std::uint32_t, Score> all;
    while (all.size() < count) {
      ::usleep(1000);
      for (const Score& score : pool.take()) all[score.id.sample] = score;
    }
    EXPECT_EQ(pool.pending(), 0U);
    return all;
  }
  /// Processes of the file of pids that still run, a moment after they should not.
  std::size_t running() const {
    std::size_t left = 1;
    for (int moment = 0; left > 0 && moment < 3000; ++moment) {
      left = 0;
      std::ifstream in(pids());
      for (pid_t pid = 0; in >> pid;) left += runs(pid) ? 1 : 0;
      if (left > 0) ::usleep(1000);
    }
    return left;
  }
  /// A zombie does not, however long its parent leaves it.
  static bool runs(pid_t pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    return in >> number >> name >> state && state != "Z";
  }
  std::size_t started() const {
    std::ifstream in(pids());
    std::size_t count = 0;
    for (pid_t pid = 0; in >> pid;) ++count;
    return count;
  }

  std::filesystem::path folder_;
  TestClock clock_;
  Tokenizer tokenizer_ = Tokenizer::parse(tiny::document().dump(), "t.json");
  std::vector<std::string> subjects_{"\"uid\":\"a\",", "\"uid\":\"b\","};
};

TEST_F(WorkerPoolTest, ScoresComeBackToTheirResponses) {
  const auto p = pool(settings("while :; do " + kRead + answer("${id#*:}.5") + "done"));
  for (const auto& [sample, score] : scores(*p, 50)) {
    EXPECT_EQ(score.outcome, ScoreOutcome::scored) << score.error;
    EXPECT_EQ(score.value, static_cast<float>(sample) + 0.5F);
    EXPECT_GE(score.duration, 0);
  }
  EXPECT_EQ(p->trouble().failures, 0U);
  EXPECT_EQ(started(), 2U);
}

TEST_F(WorkerPoolTest, WhatIsSaidBesideAScoreComesWithIt) {
  const auto p =
      pool(settings("while :; do " + kRead + answer(R"(1,\"extra\":{\"n\":2})") + "done"));
  EXPECT_EQ(scores(*p, 1)[0].extra, R"({"n":2})");
}

TEST_F(WorkerPoolTest, ALongResponseGoesThroughAPipe) {
  const auto p = pool(settings("while :; do " + kRead + answer("${#line}") + "done"));
  Trajectory t = response(0);
  t.tokens.assign(100'000, 259);  // "hello"
  p->submit(t);
  std::vector<Score> done;
  while (done.empty()) done = p->take();
  EXPECT_EQ(done[0].outcome, ScoreOutcome::scored) << done[0].error;
  EXPECT_GT(done[0].value, 500'000);
}

TEST_F(WorkerPoolTest, AWorkerThatHangsIsReplacedWithAllThatItStarted) {
  RewardSection s = settings("while :; do " + kRead + "case $id in *:3) sleep 1000 & echo $! >>" +
                             pids() + "; wait;; esac; " + answer("1") + "done");
  s.timeout = 0.2;
  s.attempts = 2;
  const auto p = pool(s);
  for (const auto& [sample, score] : scores(*p, 6)) {
    EXPECT_EQ(score.outcome, sample == 3 ? ScoreOutcome::timed_out : ScoreOutcome::scored);
    EXPECT_EQ(std::isnan(score.value), sample == 3);
    EXPECT_EQ(score.error,
              sample == 3 ? "a reward worker said nothing for 0.2 s (reward.timeout)" : "");
  }
  EXPECT_EQ(p->trouble().failures, 2U);  // both attempts
}

TEST_F(WorkerPoolTest, AWorkerThatDiesCostsItsResponseAnAttempt) {
  // The first that gets 2 dies of it; then it is scored.
  const std::string mark = (folder_ / "mark").string();
  RewardSection s = settings("while :; do " + kRead + "if [ $id = 1:2 ] && mkdir " + mark +
                             " 2>/dev/null" + "; then exit 7; fi; " + answer("1") + "done");
  auto p = pool(s);
  for (const auto& [sample, score] : scores(*p, 5))
    EXPECT_EQ(score.outcome, ScoreOutcome::scored) << sample << score.error;
  EXPECT_EQ(p->trouble().failures, 1U);
  EXPECT_EQ(p->trouble().first, "exited with code 7");

  std::filesystem::remove(mark);
  s.attempts = 1;
  p = pool(s);
  const Score score = scores(*p, 5)[2];
  EXPECT_EQ(score.outcome, ScoreOutcome::died);
  EXPECT_EQ(score.error, "a reward worker exited with code 7");

  s.command.back() = kRead + "kill -SEGV $$";
  p = pool(s);
  EXPECT_EQ(scores(*p, 1)[0].error, "a reward worker was killed by signal 11");
}

TEST_F(WorkerPoolTest, WhatIsNoAnswerIsGarbage) {
  const auto error_of = [&](const std::string& says) {
    RewardSection s = settings("while :; do " + kRead + says + "done");
    s.attempts = 1;
    const auto p = pool(s);
    const Score score = scores(*p, 1)[0];
    EXPECT_EQ(score.outcome, ScoreOutcome::garbage);
    EXPECT_TRUE(std::isnan(score.value));
    return score.error;
  };
  EXPECT_EQ(error_of("echo hello; "), "a reward worker wrote no JSON object in 'hello'");
  EXPECT_EQ(error_of("id=1:9; " + answer("1")),
            R"(a reward worker wrote not the id 1:0 in '{"id":"1:9","score":1}')");
  EXPECT_EQ(error_of(answer("NaN")),
            R"(a reward worker wrote no JSON object in '{"id":"1:0","score":NaN}')");
  EXPECT_EQ(error_of("yes | head -c 3000000 | tr -d '\\n'; "),
            "a reward worker wrote a line longer than 1 MiB");
}

TEST_F(WorkerPoolTest, AnErrorIsAnAnswer) {
  RewardSection s =
      settings("while :; do " + kRead + R"(echo "{\"id\":\"$id\",\"error\":\"no\"}"; done)");
  s.attempts = 100;
  const auto p = pool(s);
  for (const auto& [sample, score] : scores(*p, 10)) {
    EXPECT_EQ(score.outcome, ScoreOutcome::refused);
    EXPECT_EQ(score.error, "a reward worker refused it: no");
  }
  EXPECT_EQ(p->trouble().failures, 0U);
}

TEST_F(WorkerPoolTest, WorkersThatNeverAnswerAreGivenUp) {
  RewardSection s = settings("exit 3");
  s.attempts = 2;
  const auto p = pool(s);
  const auto all = scores(*p, 30);
  EXPECT_EQ(all.at(29).outcome, ScoreOutcome::not_tried);
  EXPECT_EQ(all.at(29).error, "no reward worker is left; the first one exited with code 3");
  EXPECT_EQ(started(), 10U);  // five of each
  p->submit(response(99));    // later ones too
  while (p->pending() > 0) ::usleep(1000);
  EXPECT_EQ(p->take().at(0).outcome, ScoreOutcome::not_tried);
}

TEST_F(WorkerPoolTest, NothingIsLeftBehind) {
  // They ignore that their input is closed, and have children.
  const std::string stubborn =
      "trap '' TERM HUP INT; sleep 1000 & echo $! >>" + pids() + "; while :; do sleep 1000; done";
  {
    const auto p = pool(settings(stubborn));
    p->submit(response(0));
    while (started() < 4) ::usleep(1000);
  }
  EXPECT_EQ(running(), 0U);

  // Those of a process that is killed die with it.
  std::filesystem::remove(pids());
  const pid_t child = ::fork();
  if (child == 0) {
    const auto p = pool(settings("sleep 1000 & echo $! >>" + pids() + "; wait"));
    while (true) ::pause();
  }
  while (started() < 4) ::usleep(1000);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(running(), 0U);
}

TEST_F(WorkerPoolTest, WorkersGetNoFilesOfOursAndSignalsAsUsual) {
  ::signal(SIGUSR1, SIG_IGN);
  const std::string ours = (folder_ / "ours").string();
  std::ofstream(ours) << "x";
  const int open = ::open(ours.c_str(), O_RDONLY);  // not closed by itself when a program is run
  const auto p = pool(settings("while :; do " + kRead + "n=$(ls -l /proc/$$/fd | grep -c " + ours +
                               "); for what in SigIgn SigBlk; do "
                               "p=$(sed -n \"s/^$what:[ \t]*0*//p\" /proc/$$/status); "
                               "[ -z \"$p\" ] || n=-1; done; " +
                               answer("$n") + "done"));
  EXPECT_EQ(scores(*p, 1)[0].value, 0);
  ::close(open);
  ::signal(SIGUSR1, SIG_DFL);
}

TEST(FindProgram, LooksWhereAShellWould) {
  EXPECT_TRUE(find_program("sh", "reward").ends_with("/sh"));
  EXPECT_EQ(find_program("/bin/sh", "reward"), "/bin/sh");
  EXPECT_THROW((void)find_program("no-such-program-here", "reward"), UsageError);
  EXPECT_THROW((void)find_program("/tmp", "reward"), UsageError);
  EXPECT_THROW((void)find_program("/etc/passwd", "reward"), UsageError);  // not executable
}

}  // namespace
}  // namespace paceline::io
