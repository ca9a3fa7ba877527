// Transfers begin when both ends have come and end at both alike; what they move is there then, and
// not before.
#include "runtime/sim/blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/runtime/sim/scripted_actor.hpp"

namespace paceline::sim {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::string& text) {
  Bytes bytes;
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

/// Three ranks of a node: 2 s of latency, 100 bytes a second.
class Wire {
 public:
  explicit Wire(const BlockOptions& options = {.copies = true})
      : network_({.rank = {}, .node = {2, 100}, .network = {}}, {0, 0, 0}),
        wire_(world, network_, options) {
    for (int rank = 0; rank < 3; ++rank) {
      actors.push_back(std::make_unique<ScriptedActor>(world));
      ranks.push_back(&wire_.open(rank, actors.back()->id));
    }
    run(world);
  }
  void at(int rank, double time) { world.work(actors[rank]->id, time - actors[rank]->now()); }
  Ticket send(int from, int to, std::uint64_t key, const Bytes& bytes) {
    const std::span<const std::byte> piece(bytes);
    return ranks[from]->send(to, key, {&piece, 1});
  }
  Ticket receive(int to, int from, std::uint64_t key, Bytes& bytes) {
    const std::span<std::byte> piece(bytes);
    return ranks[to]->receive(from, key, {&piece, 1});
  }
  [[nodiscard]] TransferState state(int rank, Ticket ticket) const {
    return ranks[rank]->state(ticket);
  }

  World world;
  std::vector<std::unique_ptr<ScriptedActor>> actors;
  std::vector<BlockTransport*> ranks;

 private:
  Network network_;
  BlockWire wire_;
};

constexpr auto kPending = TransferState::pending;
constexpr auto kDone = TransferState::done;
constexpr auto kFailed = TransferState::failed;

TEST(Blocks, ATransferBeginsWhenBothEndsHaveComeInEitherOrder) {
  for (const bool sender_first : {true, false}) {
    Wire wire;
    const Bytes sent(100);
    Bytes received(100);
    wire.at(sender_first ? 1 : 0, 5);
    const Ticket s = sender_first ? wire.send(0, 1, 9, sent) : 0;
    const Ticket r = wire.receive(1, 0, 9, received);
    const Ticket ticket = sender_first ? s : wire.send(0, 1, 9, sent);
    EXPECT_EQ(wire.state(0, ticket), kPending);
    EXPECT_EQ(wire.state(1, r), kPending);
    run(wire.world);  // both are woken
    for (const int rank : {0, 1}) EXPECT_EQ(wire.actors[rank]->turns.back(), 5 + 1 + 2);
    EXPECT_EQ(wire.state(0, ticket), kDone);
    EXPECT_EQ(wire.state(1, r), kDone);
    EXPECT_EQ(wire.ranks[0]->seconds(ticket), sender_first ? 8 : 3);
    EXPECT_EQ(wire.ranks[1]->seconds(r), sender_first ? 3 : 8);
    EXPECT_EQ(wire.ranks[1]->failure(r), "");
  }
}

TEST(Blocks, TransfersAreMatchedBySenderReceiverAndKey) {
  Wire wire;
  Bytes a = bytes_of("a"), b = bytes_of("b"), c = bytes_of("c"), got_a(1), got_b(1), got_c(1);
  wire.send(0, 1, 7, a);
  wire.send(0, 1, 8, b);
  wire.send(2, 1, 7, c);
  const Ticket of_c = wire.receive(1, 2, 7, got_c);
  const Ticket of_b = wire.receive(1, 0, 8, got_b);
  const Ticket of_a = wire.receive(1, 0, 7, got_a);
  run(wire.world);
  for (const Ticket ticket : {of_a, of_b, of_c}) EXPECT_EQ(wire.state(1, ticket), kDone);
  EXPECT_EQ(got_a, a);
  EXPECT_EQ(got_b, b);
  EXPECT_EQ(got_c, c);
}

TEST(Blocks, EndsMayCutTheirBytesDifferently) {
  Wire wire;
  Bytes left = bytes_of("abcd"), right = bytes_of("efg"), first(1), second(4), third(2);
  const std::span<const std::byte> sent[] = {left, right};
  const std::span<std::byte> received[] = {first, second, third};
  const Ticket s = wire.ranks[0]->send(1, 3, sent);
  const Ticket r = wire.ranks[1]->receive(0, 3, received);
  run(wire.world);
  EXPECT_EQ(wire.state(0, s), kDone);
  EXPECT_EQ(wire.state(1, r), kDone);
  EXPECT_EQ(first, bytes_of("a"));
  EXPECT_EQ(second, bytes_of("bcde"));
  EXPECT_EQ(third, bytes_of("fg"));
}

// So that whoever looks too early sees something else.
TEST(Blocks, NothingIsThereBeforeTheEnd) {
  Wire wire;
  const Bytes sent = bytes_of("abcd");
  Bytes received = sent;  // as an earlier owner of the blocks may have left them
  wire.send(0, 1, 3, sent);
  const Ticket r = wire.receive(1, 0, 3, received);
  EXPECT_NE(received, sent);
  run(wire.world);
  EXPECT_EQ(wire.state(1, r), kDone);
  EXPECT_EQ(received, sent);
}

TEST(Blocks, ASenderThatDoesNotWaitForTheEndSpoilsWhatItSends) {
  Wire wire;
  Bytes sent = bytes_of("abcd");
  Bytes received(4);
  wire.send(0, 1, 3, sent);
  const Ticket r = wire.receive(1, 0, 3, received);
  std::ranges::copy(bytes_of("wxyz"), sent.begin());
  run(wire.world);
  EXPECT_EQ(wire.state(1, r), kDone);
  EXPECT_EQ(received, bytes_of("wxyz"));
}

TEST(Blocks, ASenderThatHasHeardOfTheEndMayUseItsMemory) {
  Wire wire;
  Bytes sent = bytes_of("abcd");
  Bytes received(4);
  const Ticket s = wire.send(0, 1, 3, sent);
  const Ticket r = wire.receive(1, 0, 3, received);
  run(wire.world);
  EXPECT_EQ(wire.state(0, s), kDone);
  std::ranges::copy(bytes_of("wxyz"), sent.begin());
  EXPECT_EQ(wire.state(1, r), kDone);
  EXPECT_EQ(received, bytes_of("abcd"));
}

TEST(Blocks, MemoryThatIsNotRealIsNotTouched) {
  Wire wire({.copies = false});
  const Bytes sent = bytes_of("abcd");
  Bytes received = bytes_of("wxyz");
  wire.send(0, 1, 3, sent);
  const Ticket r = wire.receive(1, 0, 3, received);
  run(wire.world);
  EXPECT_EQ(wire.state(1, r), kDone);
  EXPECT_EQ(received, bytes_of("wxyz"));
}

TEST(Blocks, BytesStandForAsManyAsAreSaid) {
  Wire wire({.copies = true, .bytes_per_byte = 50});
  const Bytes sent(100);
  Bytes received(100);
  wire.send(0, 1, 3, sent);
  const Ticket r = wire.receive(1, 0, 3, received);
  run(wire.world);
  EXPECT_EQ(wire.ranks[1]->seconds(r), 50 + 2);
}

TEST(Blocks, WhoeverComesAfterTheOtherEndHasGivenUpFailsAtOnce) {
  Wire wire;
  Bytes bytes(100);
  const Ticket s = wire.send(0, 1, 3, bytes);
  wire.ranks[0]->cancel(s);
  EXPECT_EQ(wire.state(0, s), kFailed);
  wire.at(1, 5);
  const Ticket r = wire.receive(1, 0, 3, bytes);
  EXPECT_EQ(wire.state(1, r), kFailed);
  EXPECT_EQ(wire.ranks[1]->seconds(r), 0);
  EXPECT_NE(wire.ranks[1]->failure(r), "");
  EXPECT_EQ(wire.ranks[0]->traffic().failed, 1U);
  EXPECT_EQ(wire.ranks[1]->traffic().failed, 1U);
}

TEST(Blocks, ARefusalFailsTheOtherEndWheneverThatComes) {
  for (const bool refused_first : {true, false}) {
    Wire wire;
    Bytes bytes(100);
    wire.at(refused_first ? 1 : 0, 5);
    if (refused_first) wire.ranks[0]->refuse(1, 3);
    const Ticket r = wire.receive(1, 0, 3, bytes);
    if (!refused_first) wire.ranks[0]->refuse(1, 3);
    run(wire.world);
    EXPECT_EQ(wire.state(1, r), kFailed);
    EXPECT_EQ(wire.ranks[1]->seconds(r), refused_first ? 0 : 5);
    EXPECT_EQ(wire.ranks[0]->traffic().failed, 0U);
  }
}

TEST(Blocks, WhatHasBeenRefusedALittleLaterMayBeGivenUpBefore) {
  Wire wire;
  Bytes bytes(100);
  wire.at(0, 5);
  const Ticket r = wire.receive(1, 0, 3, bytes);
  wire.ranks[0]->refuse(1, 3);
  EXPECT_EQ(wire.state(1, r), kPending);
  wire.ranks[1]->cancel(r);
  EXPECT_EQ(wire.state(1, r), kFailed);
}

TEST(Blocks, ATransferThatOneEndGivesUpFailsAtBoth) {
  for (const int who : {0, 1}) {
    Wire wire;
    const Bytes sent(100);
    Bytes received(100);
    const Ticket tickets[] = {wire.send(0, 1, 3, sent), wire.receive(1, 0, 3, received)};
    wire.at(who, 1);
    wire.ranks[who]->cancel(tickets[who]);
    wire.at(1 - who, 1);
    for (const int rank : {0, 1}) EXPECT_EQ(wire.state(rank, tickets[rank]), kFailed);
    run(wire.world);
    EXPECT_GE(wire.actors[1 - who]->turns.size(), 2U) << "the other end is woken";
  }
}

TEST(Blocks, WhatHasEndedStaysAsItIs) {
  Wire wire;
  const Bytes sent(100);
  Bytes received(100);
  const Ticket s = wire.send(0, 1, 3, sent);
  const Ticket r = wire.receive(1, 0, 3, received);
  run(wire.world);
  wire.ranks[0]->cancel(s);
  wire.ranks[1]->cancel(r);
  EXPECT_EQ(wire.state(0, s), kDone);
  EXPECT_EQ(wire.state(1, r), kDone);
}

// One end's work may have moved its clock past the end, the other's has not.
TEST(Blocks, WhatOneEndHasSeenDoneTheOtherCannotGiveUp) {
  Wire wire;
  const Bytes sent = bytes_of("abcd");
  Bytes received(4);
  const Ticket s = wire.send(0, 1, 3, sent);
  const Ticket r = wire.receive(1, 0, 3, received);
  wire.at(1, 10);
  EXPECT_EQ(wire.state(1, r), kDone);
  EXPECT_EQ(wire.state(0, s), kPending);
  wire.ranks[0]->cancel(s);
  EXPECT_EQ(wire.state(0, s), kDone);
  EXPECT_EQ(wire.state(1, r), kDone);
  EXPECT_EQ(received, sent);
}

TEST(Blocks, AShareOfTransfersFailsAtBothEndsAlike) {
  std::vector<std::vector<bool>> lost;
  for (const std::uint64_t seed : {1, 1, 2}) {
    Wire wire({.copies = true, .failing = 0.3, .seed = seed});
    Bytes bytes(1);
    std::vector<Ticket> sent, received;
    constexpr int kTransfers = 1000;
    for (std::uint64_t key = 0; key < kTransfers; ++key) {
      sent.push_back(wire.send(0, 1, key, bytes));
      received.push_back(wire.receive(1, 0, key, bytes));
    }
    for (const Ticket ticket : sent) EXPECT_EQ(wire.state(0, ticket), kPending);
    run(wire.world);
    std::vector<bool>& failed = lost.emplace_back();
    for (int i = 0; i < kTransfers; ++i) {
      EXPECT_EQ(wire.state(0, sent[i]), wire.state(1, received[i]));
      failed.push_back(wire.state(0, sent[i]) == kFailed);
    }
    const auto count = std::count(failed.begin(), failed.end(), true);
    EXPECT_GT(count, 250);  // 300 and 3.4 standard deviations of 14.5
    EXPECT_LT(count, 350);
    const BlockTransport::Traffic traffic = wire.ranks[1]->traffic();
    EXPECT_EQ(traffic.failed, static_cast<std::uint64_t>(count));
    EXPECT_EQ(traffic.received, static_cast<std::uint64_t>(kTransfers - count));
    EXPECT_EQ(traffic.bytes_received, traffic.received);
    EXPECT_EQ(traffic.pending, 0U);
  }
  EXPECT_EQ(lost[0], lost[1]) << "the same seed";
  EXPECT_NE(lost[0], lost[2]);
}

TEST(Blocks, EndsOfDifferentSizesAreAFault) {
  Wire wire;
  Bytes four(4), five(5);
  wire.send(0, 1, 3, four);
  EXPECT_THROW(wire.receive(1, 0, 3, five), std::logic_error);
}

TEST(Blocks, ANameThatIsUsedTwiceIsAFault) {
  Wire wire;
  Bytes bytes(4);
  wire.send(0, 1, 3, bytes);
  EXPECT_THROW(wire.send(0, 1, 3, bytes), std::logic_error);
}

}  // namespace
}  // namespace paceline::sim
