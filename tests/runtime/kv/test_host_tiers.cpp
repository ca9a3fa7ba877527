// Stored KV in real memory and a real file: what goes wrong with either costs KV, and nothing else.
#include "runtime/kv/host_tiers.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/error.hpp"
#include "runtime/kv/store.hpp"

namespace paceline::kv {
namespace {

namespace fs = std::filesystem;

class HostTiersTest : public testing::Test {
 protected:
  HostTiersTest() {
    std::string name = (fs::temp_directory_path() / "kv-tiers-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no directory for the test");
    directory = name;
  }
  ~HostTiersTest() override { fs::remove_all(directory); }
  fs::path directory;
};

/// A store of blocks of 5,000 bytes, which is no multiple of anything.
class Rank {
 public:
  static constexpr std::size_t kBlock = 5000;
  Rank(int memory, int disk, const std::optional<std::string>& directory)
      : tiers({.block_bytes = kBlock,
               .units = memory,
               .directory = directory,
               .outside = {},
               .wake = [this] { wake(); }}),
        store(tiers, {memory, disk, 4}, [this](const std::string& w) { warned.push_back(w); }) {}

  /// Blocks that nobody else has the like of.
  static std::vector<std::vector<std::byte>> blocks(std::uint64_t key, int count) {
    std::vector<std::vector<std::byte>> made(count, std::vector<std::byte>(kBlock));
    for (int b = 0; b < count; ++b) {
      for (std::size_t i = 0; i < kBlock; ++i)
        made[b][i] = static_cast<std::byte>(key * 131 + b * 31 + i * (i + 7) / 3);
    }
    return made;
  }
  static std::vector<std::byte*> places(std::vector<std::vector<std::byte>>& blocks) {
    std::vector<std::byte*> at;
    for (auto& block : blocks) at.push_back(block.data());
    return at;
  }
  bool wait(Store::Ticket ticket) {
    for (;;) {
      store.settle();
      if (const std::optional<bool> done = store.ended(ticket)) return *done;
      sleep();
    }
  }
  /// Until no more is in memory.
  void wait_for_room(std::uint64_t blocks) {
    while (store.settle(), store.counts().in_memory > blocks) sleep();
  }
  bool put(std::uint64_t key, int count) {
    auto made = blocks(key, count);
    return wait(store.put(key, 0, places(made)));
  }
  /// Whether all that was put comes back.
  bool get(std::uint64_t key, int count) {
    std::vector<std::vector<std::byte>> back(count, std::vector<std::byte>(kBlock));
    if (!wait(store.get(key, 0, places(back)))) return false;
    EXPECT_EQ(back, blocks(key, count)) << "key " << key;
    return true;
  }

 private:
  void sleep() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return std::exchange(woken_, false); });
  }
  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;

 public:
  std::vector<std::string> warned;
  HostTiers tiers;
  Store store;
};

/// The file that this process has open in there, though it has no name.
std::optional<fs::path> nameless_file(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = fs::read_symlink(entry.path(), error).string();
    if (!error && target.starts_with(directory.string() + "/") && target.ends_with("(deleted)"))
      return entry.path();
  }
  return std::nullopt;
}

TEST_F(HostTiersTest, WhatIsPutComesBackFromMemoryAndFromTheDisk) {
  Rank rank(8, 200, directory);
  for (std::uint64_t key = 0; key < 20; ++key) EXPECT_TRUE(rank.put(key, 5));
  EXPECT_TRUE(fs::is_empty(directory)) << "nothing that a dead process could leave";
  EXPECT_GE(rank.store.counts().went_down, 20U * 5 - 8);
  for (std::uint64_t key = 0; key < 20; ++key) EXPECT_TRUE(rank.get(key, 5));
  EXPECT_GT(rank.store.counts().from_disk, 80U);
  const std::vector<Store::Key> order{19};
  rank.store.need(order);
  const Store::Ticket hold = rank.store.hold(19, 2);
  EXPECT_TRUE(rank.wait(hold));
  const auto held = rank.store.held(hold);
  ASSERT_EQ(held.size(), 3U);
  for (int b = 0; b < 3; ++b)
    EXPECT_EQ(0, std::memcmp(held[b].data(), Rank::blocks(19, 5)[b + 2].data(), Rank::kBlock));
  rank.store.let_go(hold);
  EXPECT_TRUE(rank.warned.empty());
}

TEST_F(HostTiersTest, AByteThatIsFlippedOnDiskIsNoticed) {
  Rank rank(8, 200, directory);
  for (std::uint64_t key = 0; key < 10; ++key) EXPECT_TRUE(rank.put(key, 5));
  rank.wait_for_room(7);
  const std::optional<fs::path> file = nameless_file(directory);
  ASSERT_TRUE(file.has_value());
  const int fd = open(file->c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0) << std::strerror(errno);
  const auto size = static_cast<std::int64_t>(fs::file_size(*file));
  for (std::int64_t at = 100; at < size; at += 4096) {  // one in each slot, its padding's perhaps
    char byte = 0;
    ASSERT_EQ(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    ASSERT_EQ(pwrite(fd, &byte, 1, at), 1);
  }
  close(fd);
  int lost = 0;
  for (std::uint64_t key = 0; key < 10; ++key) lost += rank.get(key, 5) ? 0 : 1;
  EXPECT_EQ(lost, 9);
  EXPECT_TRUE(rank.get(0, 5)) << "it was in memory";
  EXPECT_EQ(rank.warned.size(), 1U);
  EXPECT_GE(rank.store.counts().damaged, 9U);
  EXPECT_TRUE(rank.put(3, 5));
  EXPECT_TRUE(rank.get(3, 5)) << "and what comes afterwards is as good as ever";
}

TEST_F(HostTiersTest, AByteThatIsFlippedInMemoryIsNoticed) {
  Rank rank(8, 0, std::nullopt);
  EXPECT_TRUE(rank.put(1, 5));
  rank.tiers.unit(3)[4999] ^= std::byte{1};
  EXPECT_FALSE(rank.get(1, 5));
  EXPECT_TRUE(rank.get(1, 3));
  EXPECT_EQ(rank.warned.size(), 1U);
}

TEST_F(HostTiersTest, ADirectoryMayVanishWhileItIsInUse) {
  Rank rank(8, 200, directory);
  EXPECT_TRUE(rank.put(1, 5));
  fs::remove_all(directory);
  for (std::uint64_t key = 2; key < 20; ++key) EXPECT_TRUE(rank.put(key, 5));
  for (std::uint64_t key = 1; key < 20; ++key) EXPECT_TRUE(rank.get(key, 5));
  EXPECT_TRUE(rank.warned.empty());
}

TEST_F(HostTiersTest, ADirectoryThatIsNotThereIsAnErrorThatNamesIt) {
  const std::string missing = (directory / "missing").string();
  try {
    Rank rank(8, 200, missing);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find(missing), std::string::npos);
  }
}

// A limit on the size of files stands for a disk that is full.
TEST_F(HostTiersTest, ADiskThatFillsKeepsWhatItHas) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{20 * 8192, 20 * 8192};
    setrlimit(RLIMIT_FSIZE, &limit);
    Rank rank(8, 200, directory);
    int there = 0;
    for (std::uint64_t key = 0; key < 20; ++key) rank.put(key, 5);
    for (std::uint64_t key = 0; key < 20; ++key) there += rank.get(key, 5) ? 1 : 0;
    const bool fine = there >= 4 && there <= 5 && rank.warned.size() == 1 &&
                      rank.warned[0].find("File too large") != std::string::npos &&
                      rank.warned[0].find(directory.string()) != std::string::npos;
    // Room that becomes free is used again.
    for (std::uint64_t key = 0; key < 20; ++key) rank.store.drop(key);
    int again = 0;
    for (std::uint64_t key = 20; key < 24; ++key) rank.put(key, 5);
    for (std::uint64_t key = 20; key < 24; ++key) again += rank.get(key, 5) ? 1 : 0;
    if (!fine || again != 4) std::fprintf(stderr, "%d there, then %d\n", there, again);
    for (const std::string& text : rank.warned) std::fprintf(stderr, "%s\n", text.c_str());
    _exit(fine && again == 4 && rank.warned.size() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(HostTiersTest, AProcessThatIsKilledLeavesNothing) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Rank rank(8, 200, directory);
    for (std::uint64_t key = 0; key < 20; ++key) rank.put(key, 5);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(fs::is_empty(directory));
}

std::size_t resident_pages(std::byte* begin, std::size_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  EXPECT_EQ(mincore(begin, bytes, pages.data()), 0);
  std::size_t resident = 0;
  for (const unsigned char page : pages) resident += page & 1;
  return resident;
}

TEST_F(HostTiersTest, MemoryIsTakenWhenItIsUsedAndGivenBackAfterwards) {
  constexpr int kUnits = 40'000;  // 312 MiB
  Rank rank(kUnits, 0, std::nullopt);
  const std::size_t bytes = kUnits * HostTiers::stride(Rank::kBlock);
  std::byte* const begin = rank.tiers.unit(0).data();
  EXPECT_EQ(resident_pages(begin, bytes), 0U);
  for (std::uint64_t key = 0; key < 20; ++key) EXPECT_TRUE(rank.put(key, 800));
  EXPECT_GE(resident_pages(begin, bytes), 20U * 800 * 2);
  for (std::uint64_t key = 1; key < 20; ++key) rank.store.drop(key);
  EXPECT_LT(resident_pages(begin, bytes), 800U * 2 + 512) << "at most a large page more";
  EXPECT_TRUE(rank.get(0, 800));
}

}  // namespace
}  // namespace paceline::kv
