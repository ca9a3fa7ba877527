// The thread pool: every unit once, whoever comes by, job after job.
#include "runtime/core/thread_pool.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

namespace paceline {
namespace {

TEST(ThreadPoolTest, RunsEveryUnitOnceInEveryPass) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int round = 0; round < 300; ++round) {
      const int count = round % 23;
      const int passes = 1 + round % 3;
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count) * passes);
      std::atomic<int> strangers{0};
      pool.for_passes(count, passes, [&](int thread, int unit, int pass) {
        if (thread < 0 || thread >= threads) ++strangers;
        ++seen[unit * passes + pass];
      });
      for (const std::atomic<int>& times : seen) ASSERT_EQ(times, 1);
      ASSERT_EQ(strangers, 0);
    }
  }
}

TEST(ThreadPoolTest, HasAtLeastItsCaller) { EXPECT_THROW(ThreadPool(0), std::invalid_argument); }

TEST(ThreadPoolTest, ResultsAreVisibleToTheCallerAndTheNextJob) {
  ThreadPool pool(3);
  std::vector<int> values(97);
  for (int round = 0; round < 2000; ++round) {
    pool.for_units(97, [&](int, int unit) { values[unit] += values[unit] == round; });
  }
  for (const int value : values) EXPECT_EQ(value, 2000);
}

TEST(ThreadPoolTest, SleepingThreadsWakeForTheNextJob) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> done{0};
    std::atomic<int> helper{0};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    // The caller's unit waits for the helper's: it must come.
    pool.for_units(2, [&](int thread, int) {
      if (thread == 1) ++helper;
      ++done;
      while (thread == 0 && helper == 0 && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
      }
    });
    EXPECT_EQ(done, 2);
    EXPECT_GE(helper, 1);
  }
}

}  // namespace
}  // namespace paceline
