// The coordinator alone: what it sends in answer to each message.
#include "runtime/roles/coordinator.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "runtime/policy/schedule/balancing_scheduler.hpp"
#include "tests/runtime/requests.hpp"
#include "tests/runtime/roles/simulated_mailbox.hpp"

namespace paceline::roles {

using namespace protocol;

namespace {

constexpr std::size_t kDoneBefore = 3;

/// A coordinator of groups of two ranks each, and a spare rank after them.
class World {
 public:
  /// `sampling`: of prompts that have so many requests each; null: there is one prompt.
  World(int groups, std::uint32_t requests, const policy::LeaseTerms& terms = {.max_tokens = 1024},
        policy::DynamicSampling* sampling = nullptr, std::uint32_t prompts = 1)
      : scheduler_({.terms = terms}), prompts_(prompts) {
    for (Prompt& prompt : prompts_) {
      prompt.uid = "u";
      prompt.tokens = {1, 2};
    }
    policy::Placement placement;
    placement.ranks = 2 * groups + 1;
    for (int g = 0; g < groups; ++g) placement.groups.push_back({2 * g, 2});
    coordinator = std::make_unique<Coordinator>(
        mailbox_, scheduler_, placement, empty_responses(prompts, requests),
        std::make_unique<policy::FirstCome>(), prompts_,
        CoordinatorOptions{.seed = 1, .terms = terms, .sampling = sampling}, kDoneBefore);
  }

  void tell(int rank, const Message& message) {
    post_.put(Address::coordinator(), {rank}, encode(message));
    EXPECT_TRUE(coordinator->turn().worked);
  }
  /// The group's leader reports; so many of its requests, as of leased(), have finished since.
  void status(int group, std::int32_t room, std::uint64_t orders_received,
              std::size_t finished = 0) {
    Status status;
    status.room = room;
    status.kv_room = 1 << 20;
    status.orders_received = orders_received;
    std::vector<RequestId>& has = unfinished_[group];
    ASSERT_LE(finished, has.size());
    status.finished.assign(has.begin(), has.begin() + static_cast<std::ptrdiff_t>(finished));
    has.erase(has.begin(), has.begin() + static_cast<std::ptrdiff_t>(finished));
    tell(2 * group, status);
  }
  /// What a rank was sent since the last call.
  std::vector<Message> sent(int rank) {
    std::vector<Message> messages;
    while (const auto envelope = post_.take({rank, Address::Port::role})) {
      messages.push_back(decode(envelope->bytes));
    }
    return messages;
  }
  /// Samples of the requests that a group was leased since the last call.
  std::vector<std::uint32_t> leased(int group) {
    std::vector<std::uint32_t> samples;
    for (const Message& message : sent(2 * group)) {
      const RequestId id = std::get<Lease>(message).request.trajectory.id;
      samples.push_back(id.sample);
      unfinished_[group].push_back(id);
    }
    return samples;
  }

 private:
  test::Post post_;
  test::SimulatedMailbox mailbox_{post_, Address::coordinator()};
  policy::BalancingScheduler scheduler_;
  std::vector<Prompt> prompts_;
  std::map<int, std::vector<RequestId>> unfinished_;  ///< what groups were leased, as of leased()

 public:
  std::unique_ptr<Coordinator> coordinator;
};

using Samples = std::vector<std::uint32_t>;

template <typename Kind>
bool only(const std::vector<Message>& messages) {
  return messages.size() == 1 && std::holds_alternative<Kind>(messages[0]);
}

TEST(Coordinator, LeasesUnderWayTakeTheRoomThatAStatusSpeaksOf) {
  World world(1, 20);
  world.status(0, 4, 0);
  EXPECT_EQ(world.leased(0), (Samples{0, 1, 2, 3}));
  world.status(0, 4, 0);  // sent before the leases arrived
  EXPECT_EQ(world.leased(0), Samples{});
  world.status(0, 6, 3);  // three have arrived
  EXPECT_EQ(world.leased(0), (Samples{4, 5, 6, 7, 8}));
  world.status(0, 2, 9);
  EXPECT_EQ(world.leased(0), (Samples{9, 10}));
}

TEST(Coordinator, WhatAGroupFinishedNoLongerCountsForItsShare) {
  World world(3, 12);
  world.status(1, 10, 0);
  EXPECT_EQ(world.leased(1), (Samples{0, 1, 2, 3}));
  world.status(1, 10, 4);
  EXPECT_EQ(world.leased(1), Samples{}) << "more than its third";
  world.status(1, 10, 4, 3);  // 9 unfinished, of which it holds 1
  EXPECT_EQ(world.leased(1), (Samples{4, 5}));
  world.status(0, 10, 0);
  EXPECT_EQ(world.leased(0), (Samples{6, 7, 8}));
}

TEST(Coordinator, RenewsLeasesWhileThereIsRoomAndElseTakesTheRequestBack) {
  World world(1, 3, {.chunk = 16, .max_tokens = 64});
  Status status;
  status.room = 8;
  status.kv_room = 7;  // of two tokens of prompt and 16 of response: 2 blocks, and a spare one
  world.tell(0, status);
  EXPECT_EQ(world.leased(0), (Samples{0, 1}));
  status.orders_received = 2;
  status.kv_room = 1;
  status.running = {{{0, 0}, 14}, {{0, 1}, 13}};
  status.ending = {{0, 0}, {0, 1}};
  world.tell(0, status);
  const std::vector<Message> answers = world.sent(0);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(std::get<Renew>(answers[0]).id, (RequestId{0, 0}));
  EXPECT_EQ(std::get<Renew>(answers[0]).until, 32U);
  const Move& back = std::get<Move>(answers[1]);
  EXPECT_EQ(back.id, (RequestId{0, 1}));
  EXPECT_EQ(back.to.leader, policy::kToTable)
      << "the coordinator: the one block left is the other's";

  Returned returned{.trajectory = {}, .kv = {back.key, {0, 2}, 15, {}}};
  returned.trajectory.id = {0, 1};
  returned.trajectory.tokens.resize(16);
  world.tell(0, returned);
  EXPECT_TRUE(world.sent(0).empty()) << "there is no room";
  status = {};
  status.room = 8;
  status.orders_received = 3;
  status.kv_room = 4;
  world.tell(0, status);
  const std::vector<Message> leases = world.sent(0);
  ASSERT_EQ(leases.size(), 1U);
  const Lease& again = std::get<Lease>(leases[0]);
  EXPECT_EQ(again.request.trajectory.id, (RequestId{0, 1})) << "it came before the third";
  EXPECT_EQ(again.request.until, 32U);
  EXPECT_EQ(again.kv.key, back.key);
  EXPECT_EQ(again.kv.positions, 15);
  EXPECT_EQ(again.kv.group, (policy::GroupRanks{0, 2}));
}

TEST(Coordinator, ALeaseThatEndsWhileItsRequestMovesIsLeftToItsNextGroup) {
  World world(2, 2, {.chunk = 16, .max_tokens = 64});
  world.status(0, 8, 0);
  ASSERT_EQ(world.leased(0), (Samples{0}));
  Status status;
  status.orders_received = 1;
  status.kv_room = 0;
  status.running = {{{0, 0}, 16}};
  status.ending = {{0, 1}};
  world.tell(0, status);
  EXPECT_TRUE(world.sent(0).empty()) << "it is not this group's";
  status.ending = {{0, 0}};
  world.tell(0, status);
  EXPECT_TRUE(only<Renew>(world.sent(0))) << "alone it has room";
}

TEST(Coordinator, CountsTheRun) {
  World world(2, 8);
  world.status(0, 2, 0);
  world.status(1, 2, 0);
  EXPECT_EQ(world.coordinator->progress().waiting, 8U);
  Status status;
  status.active = 2;
  status.tokens = 100;
  status.orders_received = 2;
  world.tell(0, status);
  status.active = 0;
  status.unflushed = 1;
  status.tokens = 101;
  status.finished = {{0, 2}};
  world.tell(2, status);
  const Progress progress = world.coordinator->progress();
  EXPECT_EQ(progress.total, kDoneBefore + 8);
  EXPECT_EQ(progress.finished, kDoneBefore + 1);
  EXPECT_EQ(progress.finished_before, kDoneBefore);
  EXPECT_EQ(progress.unflushed, 1U);
  EXPECT_EQ(progress.active, 2U);
  EXPECT_EQ(progress.partial, 0U);
  EXPECT_EQ(progress.waiting, 4U);
  EXPECT_EQ(progress.tokens, 201U);
}

TEST(Coordinator, ProgressAddsUpWhateverGroupsSayAndWhen) {
  World world(2, 8);
  EXPECT_EQ(world.coordinator->progress().loading, 2);
  world.status(0, 4, 0);
  EXPECT_EQ(world.coordinator->progress().loading, 1);
  world.status(1, 4, 0);
  EXPECT_EQ(world.coordinator->progress().loading, 0);
  const auto tell = [&](int rank, std::int32_t active, std::int32_t unflushed, std::int32_t partial,
                        std::int32_t stopped) {
    Status status;
    status.active = active;
    status.unflushed = unflushed;
    status.partial = partial;
    status.stopped = stopped;
    status.orders_received = 4;
    world.tell(rank, status);
    const Progress p = world.coordinator->progress();
    EXPECT_EQ(p.finished + p.unflushed + p.active + p.partial + p.waiting, p.total);
    return p;
  };
  tell(0, 4, 0, 0, 0);
  // A request that has moved is still in the other group's last status: five and four of eight.
  const Progress moved = tell(2, 5, 0, 0, 0);
  EXPECT_EQ(moved.active, 8U);
  EXPECT_EQ(moved.waiting, 0U);
  const Progress ended = tell(2, 2, 2, 0, 0);
  EXPECT_EQ(ended.unflushed, 2U);
  EXPECT_EQ(ended.active, 6U);
  world.coordinator->stop();
  tell(2, 0, 0, 2, 1);
  const Progress stopped = tell(0, 0, 0, 3, 1);
  EXPECT_EQ(stopped.partial, 5U);
  EXPECT_EQ(stopped.active, 0U);
  EXPECT_EQ(stopped.waiting, 3U);
}

TEST(Coordinator, TellsAllButMembersWhenEverythingIsFinished) {
  World world(1, 2);
  world.status(0, 2, 0);
  EXPECT_EQ(world.leased(0).size(), 2U);
  world.status(0, 1, 2, 1);
  EXPECT_TRUE(world.sent(0).empty());
  EXPECT_FALSE(world.coordinator->complete());
  world.status(0, 2, 2, 1);
  EXPECT_TRUE(only<Finish>(world.sent(0)));
  EXPECT_TRUE(world.sent(1).empty());
  EXPECT_TRUE(only<Finish>(world.sent(2)));
  world.status(0, 2, 2);
  world.coordinator->stop();  // too late
  EXPECT_TRUE(world.sent(0).empty());
  EXPECT_TRUE(world.coordinator->complete());
  for (const std::uint32_t rank : {0U, 1U, 2U}) {
    EXPECT_FALSE(world.coordinator->over());
    Summary summary;
    summary.rank.rank = rank;
    world.tell(static_cast<int>(rank), summary);
  }
  EXPECT_TRUE(world.coordinator->over());
}

TEST(Coordinator, RewardsDecideWhatBeginsAndWhenTheRunIsOver) {
  policy::DynamicSampling sampling({0, 1, 2, 3, 4, 5}, std::vector<std::uint32_t>(6, 2), 1);
  World world(1, 2, {.max_tokens = 1024}, &sampling, 6);
  world.status(0, 8, 0);
  EXPECT_EQ(world.leased(0), (Samples{0, 1, 0, 1})) << "two prompts for the one that is wanted";
  EXPECT_EQ(world.coordinator->progress().total, kDoneBefore + 4);
  world.tell(0, Rewarded{{{{0, 0}, 1}, {{0, 1}, 1}}});
  EXPECT_EQ(world.leased(0), (Samples{0, 1, 0, 1})) << "three are likely to be needed";
  world.tell(0, Rewarded{{{{2, 0}, 1}, {{2, 1}, 0}}});
  EXPECT_TRUE(world.sent(0).empty()) << "none is needed after the third, and the second may count";
  EXPECT_FALSE(world.coordinator->complete());
  world.tell(0, Rewarded{{{{1, 0}, 0}, {{1, 1}, 1}}});
  EXPECT_TRUE(only<Stop>(world.sent(0)));
  EXPECT_TRUE(world.coordinator->complete());
  EXPECT_EQ(sampling.outcome().kept, std::vector<std::uint32_t>{1});
  Status stopped;
  stopped.stopped = 1;
  stopped.orders_received = 8;
  world.tell(0, stopped);
  EXPECT_TRUE(only<Finish>(world.sent(0)));
}

TEST(Coordinator, WaitsForTheRewardsOfAllPromptsWhereNoneIsLeft) {
  policy::DynamicSampling sampling({0, 1}, std::vector<std::uint32_t>(2, 1), 2);
  World world(1, 1, {.max_tokens = 1024}, &sampling, 2);
  world.status(0, 8, 0);
  EXPECT_EQ(world.leased(0), (Samples{0, 0}));
  world.tell(0, Rewarded{{{{1, 0}, 1}}});
  world.status(0, 8, 2, 2);
  EXPECT_TRUE(world.sent(0).empty()) << "a reward is not there";
  world.tell(2, Rewarded{{{{0, 0}, NAN}}});  // by another rank
  EXPECT_TRUE(only<Finish>(world.sent(0)));
  EXPECT_TRUE(world.coordinator->complete());
}

TEST(Coordinator, AStopFromAnyRankEndsLeasing) {
  World world(2, 20);
  world.status(0, 3, 0);
  EXPECT_EQ(world.leased(0).size(), 3U);
  world.tell(1, StopRequest{1});  // a member
  EXPECT_TRUE(only<Stop>(world.sent(0)));
  EXPECT_TRUE(world.sent(1).empty());
  EXPECT_TRUE(only<Stop>(world.sent(2)));
  world.tell(3, StopRequest{3});  // another, of the same signal
  world.status(0, 5, 3);
  EXPECT_TRUE(world.sent(0).empty());

  Status stopped;
  stopped.stopped = 1;
  world.tell(0, stopped);
  EXPECT_TRUE(world.sent(0).empty()) << "its leases are still on their way";
  stopped.orders_received = 3;
  world.tell(0, stopped);
  EXPECT_TRUE(world.sent(0).empty()) << "the other group still works";
  stopped.orders_received = 0;
  world.tell(2, stopped);
  for (const int rank : {0, 2, 4}) EXPECT_TRUE(only<Finish>(world.sent(rank))) << rank;
  EXPECT_FALSE(world.coordinator->complete());
}

TEST(Coordinator, ADrafterRankIsBelievedOnlyWhatItMaySay) {
  test::Post post;
  test::SimulatedMailbox mailbox(post, Address::coordinator());
  policy::BalancingScheduler scheduler({});
  const std::vector<Prompt> prompts(1);
  const policy::Placement placement{
      .epoch = 0, .ranks = 3, .groups = {{0, 1}, {1, 1}}, .drafters = {{2, 0}}};
  Coordinator coordinator(mailbox, scheduler, placement, std::vector<Trajectory>(1),
                          std::make_unique<policy::FirstCome>(), prompts, {}, 0);
  for (const Message& message : {Message(StopRequest{0}), Message(Summary{}), Message(Ready{1}),
                                 Message(Status{}), Message(Finish{})})
    post.put(Address::coordinator(), {2}, encode(message));
  post.put(Address::coordinator(), {2}, std::vector<std::byte>(1, std::byte{18}));
  coordinator.turn();
  EXPECT_EQ(coordinator.progress().nonsense, 6U);
  EXPECT_FALSE(post.holds({0}));
  post.put(Address::coordinator(), {2}, encode(StopRequest{2}));
  coordinator.turn();
  ASSERT_TRUE(post.holds({0}));
  EXPECT_TRUE(std::holds_alternative<Stop>(decode(post.take({0})->bytes)));
}

/// Two groups of which the first has eight requests and the second has ended its own.
struct OneRanDry : World {
  OneRanDry() : World(2, 16) {
    status(0, 8, 0);
    status(1, 8, 0);
    EXPECT_EQ(leased(0).size(), 8U);
    EXPECT_EQ(leased(1).size(), 8U);
  }
  /// The group has these; what else it had has ended, with so many tokens.
  void report(int group, const Samples& running, const Samples& ended, std::uint32_t tokens) {
    Status status;
    status.active = static_cast<std::int32_t>(running.size());
    status.room = 8 - status.active;
    status.orders_received = 8;
    for (const std::uint32_t sample : running) status.running.push_back({{0, sample}, tokens});
    for (const std::uint32_t sample : ended) status.ended.push_back({{0, sample}, tokens});
    tell(2 * group, status);
  }
  /// Samples that the first group was told to hand over.
  Samples moved() {
    Samples samples;
    for (const Message& message : sent(0)) samples.push_back(std::get<Move>(message).id.sample);
    return samples;
  }
};

TEST(Coordinator, WhatHasEndedIsNotMovedAlthoughItIsNotOnDisk) {
  OneRanDry world;
  world.report(0, {4, 5, 6, 7}, {0, 1, 2, 3}, 40);
  world.report(1, {}, {8, 9, 10, 11, 12, 13, 14, 15}, 40);
  const Samples moved = world.moved();
  EXPECT_EQ(moved.size(), 2U);
  for (const std::uint32_t sample : moved) EXPECT_GE(sample, 4U);
  world.report(0, {4, 5, 6, 7}, {}, 41);
  EXPECT_EQ(world.moved(), Samples{}) << "they are on their way";
}

TEST(Coordinator, MovesOnlyWhatEndsSoonerByTheCostsItWasTold) {
  for (const bool flat : {false, true}) {
    OneRanDry world;
    Costs told;
    told.costs.table.decode = CostCurve({{1, 1}, {8, flat ? 1.0 : 8.0}});
    told.costs.table.prefill = CostCurve({{16, 1}});
    told.costs.table.transfer = TransferCosts{1, 1e6};
    told.costs.position_bytes = 1;
    world.tell(0, told);
    world.tell(2, told);
    world.report(0, {0, 1, 2, 3, 4, 5, 6, 7}, {}, 40);
    world.report(1, {}, {8, 9, 10, 11, 12, 13, 14, 15}, 40);
    EXPECT_EQ(world.moved().empty(), flat);
  }
}

}  // namespace
}  // namespace paceline::roles
