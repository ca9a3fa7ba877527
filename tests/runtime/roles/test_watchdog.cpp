// When a run is found to hang, and what is said of it.
#include "runtime/roles/watchdog.hpp"

#include <gtest/gtest.h>

#include "runtime/policy/schedule/balancing_scheduler.hpp"
#include "tests/runtime/requests.hpp"
#include "tests/runtime/roles/simulated_mailbox.hpp"

namespace paceline::roles {
namespace {

using Verdict = Watchdog::Verdict;

/// Two groups of one rank and a drafter rank, looked at ten times a second.
struct WatchdogTest : ::testing::Test {
  WatchdogTest() {
    coordinator = std::make_unique<Coordinator>(
        mailbox, scheduler, placement, empty_responses(1, 4), std::make_unique<policy::FirstCome>(),
        prompts, CoordinatorOptions{}, 0);
  }
  void status(int rank, std::uint64_t steps) {
    protocol::Status status;
    status.room = 3;
    status.kv_room = 1000;
    status.steps = steps;
    tell(rank, status);
  }
  void tell(int rank, const protocol::Message& message) {
    post.put(Address::coordinator(), {rank}, protocol::encode(message));
    coordinator->turn();
  }
  /// The first verdict other than goes_on within so many seconds.
  Verdict wait(double seconds) {
    for (const double end = now + seconds; now < end;) {
      now += 0.1;
      const Verdict verdict = watchdog.look(now, *coordinator);
      if (verdict != Verdict::goes_on) return verdict;
    }
    return Verdict::goes_on;
  }
  policy::Placement placement{
      .epoch = 0, .ranks = 3, .groups = {{0, 1}, {1, 1}}, .drafters = {{2, 0}}};
  test::Post post;
  test::SimulatedMailbox mailbox{post, Address::coordinator()};
  std::vector<Prompt> prompts{1};
  policy::BalancingScheduler scheduler{{}};
  std::unique_ptr<Coordinator> coordinator;
  Watchdog watchdog{60};
  double now = 5;
};

TEST_F(WatchdogTest, ARunThatStandsStillIsStoppedAndThenGivenUp) {
  EXPECT_EQ(wait(1000), Verdict::goes_on) << "weights are being read";
  status(0, 0);
  status(1, 0);
  for (std::uint64_t step = 1; step < 5; ++step) {
    EXPECT_EQ(wait(50), Verdict::goes_on);
    status(1, step);
  }
  EXPECT_EQ(wait(50), Verdict::goes_on);
  status(1, 4);  // a report of nothing new
  EXPECT_EQ(wait(11), Verdict::stop);
  const std::string report = watchdog.report(*coordinator);
  EXPECT_EQ(report,
            "no progress for 1m00s; waiting for rank 0 (verifier; last message 4m20s ago), rank 1 "
            "(verifier; last message 10s ago)");
  coordinator->stop();
  EXPECT_EQ(wait(8), Verdict::goes_on);
  protocol::Status stopped;
  stopped.stopped = 1;
  tell(1, stopped);  // which is something
  EXPECT_EQ(wait(8), Verdict::goes_on);
  EXPECT_EQ(wait(3), Verdict::give_up);
}

TEST_F(WatchdogTest, AtTheEndItNamesTheRanksThatDidNotReport) {
  status(0, 0);
  status(1, 0);
  protocol::Status done;
  done.finished = {{0, 0}, {0, 1}};
  tell(0, done);
  done.finished = {{0, 2}, {0, 3}};
  tell(1, done);
  ASSERT_TRUE(coordinator->complete());
  for (const std::uint32_t rank : {0U, 1U}) {
    protocol::Summary summary;
    summary.rank.rank = rank;
    tell(static_cast<int>(rank), summary);
  }
  EXPECT_EQ(wait(59), Verdict::goes_on);
  EXPECT_EQ(wait(2), Verdict::stop);
  EXPECT_EQ(watchdog.report(*coordinator),
            "no progress for 1m00s; waiting for rank 2 (drafter; no message yet)");
}

TEST_F(WatchdogTest, TimeInWhichTheWholeJobSleptDoesNotCount) {
  status(0, 0);
  EXPECT_EQ(wait(30), Verdict::goes_on);
  now += 10'000;
  EXPECT_EQ(wait(28), Verdict::goes_on);
  EXPECT_EQ(wait(4), Verdict::stop);
}

TEST_F(WatchdogTest, WithoutALimitItOnlyLooks) {
  watchdog = Watchdog(std::nullopt);
  status(0, 0);
  EXPECT_EQ(wait(5000), Verdict::goes_on);
}

}  // namespace
}  // namespace paceline::roles
