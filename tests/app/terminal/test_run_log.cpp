// The log of a run: what was said before it was opened, by several ranks and attempts, and by one
// that was killed.
#include "app/terminal/run_log.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/terminal/terminal.hpp"

namespace paceline::app {
namespace {

namespace fs = std::filesystem;

class RunLogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "run-log-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }
  [[nodiscard]] std::string path() const { return directory_ + "/paceline.log"; }
  /// With the times at which attempts ended left out.
  [[nodiscard]] std::string text() const {
    std::ifstream file(path());
    std::string all{std::istreambuf_iterator<char>(file), {}};
    constexpr std::string_view kEnded = "== ended ";
    constexpr std::string_view kShape = "0000-00-00 00:00:00 UTC";
    for (std::size_t at = all.find(kEnded); at != std::string::npos;
         at = all.find(kEnded, at + 1)) {
      std::string when = all.substr(at + kEnded.size(), kShape.size());
      std::replace_if(
          when.begin(), when.end(), [](char c) { return c >= '0' && c <= '9'; }, '0');
      if (when == kShape) all.erase(at + kEnded.size() - 1, kShape.size() + 1);
    }
    return all;
  }

  std::string directory_;
};

TEST_F(RunLogTest, KeepsWhatIsSaidOfEveryAttempt) {
  say("before");
  {
    RunLog log;
    say("banner");
    write_to_user("layout\n  plan\n");
    draw("[###....]");
    EXPECT_EQ(log.open(directory_, "== start 1"), "");
    say("warning: {}", 1);
    write_from_handler("paceline: cut short\n");
  }
  say("between");
  {
    RunLog log;
    say("banner");
    EXPECT_EQ(log.open(directory_, "== start 2"), "");
  }
  EXPECT_EQ(text(),
            "== start 1\nbanner\nlayout\n  plan\nwarning: 1\npaceline: cut short\n== ended\n"
            "== start 2\nbanner\n== ended\n");
}

TEST_F(RunLogTest, OfARunThatNeverOpensItNothingIsLeft) {
  {
    RunLog log;
    say("no such model");
  }
  RunLog next;
  EXPECT_EQ(next.open(directory_, "== start 1"), "");
  EXPECT_EQ(text(), "== start 1\n");
}

TEST_F(RunLogTest, OtherRanksAppendWhenTheyHaveSomethingToSay) {
  RunLog log;
  log.join(directory_);
  EXPECT_FALSE(fs::exists(path()));
  std::ofstream(path()) << "== start 1\n";
  say("warning: rank 1: slow");
  say("warning: rank 1: full");
  EXPECT_EQ(text(), "== start 1\nwarning: rank 1: slow\nwarning: rank 1: full\n");
}

TEST_F(RunLogTest, WhatARankSaidBeforeItJoinedIsKept) {
  {
    RunLog log;
    say("warning: early");
    log.join(directory_);
  }
  EXPECT_EQ(text(), "warning: early\n");
}

TEST_F(RunLogTest, ThreadsThatSpeakFirstAtOnceOpenTheFileOnce) {
  constexpr int kRounds = 200;
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = open_files();
  for (int round = 0; round < kRounds; ++round) {
    RunLog log;
    log.join(directory_);
    std::barrier start(2);
    const std::jthread other([&] {
      start.arrive_and_wait();
      keep_in_log("said\n");
    });
    start.arrive_and_wait();
    keep_in_log("said\n");
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(text().size(), 2 * kRounds * std::string_view("said\n").size());
}

TEST_F(RunLogTest, WhatIsSaidWhileTheFileIsOpenedIsKept) {
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    fs::remove(path());
    RunLog log;
    std::barrier start(2);
    std::jthread other([&] {
      start.arrive_and_wait();
      keep_in_log("said\n");
    });
    start.arrive_and_wait();
    EXPECT_EQ(log.open(directory_, "== start 1"), "");
    other.join();
    ASSERT_EQ(text(), "== start 1\nsaid\n") << round;
  }
}

TEST_F(RunLogTest, ARunThatIsKilledLeavesWholeLines) {
  const pid_t child = ::fork();
  if (child == 0) {
    RunLog log;
    if (!log.open(directory_, "== start 1").empty()) ::_exit(1);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([t] {
        for (int i = 0; i < 200; ++i)
          keep_in_log(std::string(60, static_cast<char>('a' + t)) + "\n");
      });
    threads.clear();
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  std::ifstream file(path());
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "== start 1");
  int lines = 0;
  for (; std::getline(file, line); ++lines) EXPECT_EQ(line, std::string(60, line.front()));
  EXPECT_EQ(lines, 800);
}

TEST_F(RunLogTest, ALineThatWasCutShortEndsThere) {
  std::ofstream(path()) << "== start 1\nwarn";
  {
    RunLog log;
    EXPECT_EQ(log.open(directory_, "== start 2"), "");
  }
  EXPECT_EQ(text(), "== start 1\nwarn\n== start 2\n== ended\n");
}

TEST_F(RunLogTest, WhatCannotBeWrittenIsSaidAndHarmsNothing) {
  fs::create_directory(path());
  RunLog log;
  EXPECT_NE(log.open(directory_, "== start 1").find("paceline.log: Is a directory"),
            std::string::npos);
  say("goes on");
  fs::remove(path());
  const std::string outside = directory_ + "/outside";
  std::ofstream(outside) << "precious";
  fs::create_symlink(outside, path());
  RunLog linked;
  EXPECT_NE(linked.open(directory_, "== start 1"), "");
  linked.join(directory_);
  say("goes on");
  std::ifstream file(outside);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "precious");
}

}  // namespace
}  // namespace paceline::app
